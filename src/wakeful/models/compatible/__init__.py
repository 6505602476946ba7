"""Other servers of OpenAI's APIs: local servers, gateways, vendors and Azure."""

from ..openai.dialect import Dialect as Dialect
from ..openai.dialect import ResponsesDialect as ResponsesDialect
from .azure import AzureModel as AzureModel
from .azure import AzureResponsesModel as AzureResponsesModel
from .model import CompatibleModel as CompatibleModel
from .model import CompatibleResponsesModel as CompatibleResponsesModel
from .model import CompatibleSettings as CompatibleSettings
from .model import vendor as vendor
from .servers import SERVERS as SERVERS
from .servers import Server as Server
