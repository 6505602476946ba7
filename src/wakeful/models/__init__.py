"""Models: the protocol, the ones that need no network, and how names find them."""

from ._facts import FactTable as FactTable
from ._facts import LongPrices as LongPrices
from ._facts import ModelFacts as ModelFacts
from ._facts import cost_of as cost_of
from ._facts import shipped_facts as shipped_facts
from ._protocol import CallChunk as CallChunk
from ._protocol import CallDeltaChunk as CallDeltaChunk
from ._protocol import CallStartChunk as CallStartChunk
from ._protocol import Chunk as Chunk
from ._protocol import Model as Model
from ._protocol import ModelRequest as ModelRequest
from ._protocol import PartChunk as PartChunk
from ._protocol import ReasoningChunk as ReasoningChunk
from ._protocol import StopChunk as StopChunk
from ._protocol import TextChunk as TextChunk
from ._protocol import UsageChunk as UsageChunk
from ._registry import ModelRegistry as ModelRegistry
from ._registry import VendorFactory as VendorFactory
from ._registry import check_live as check_live
from ._registry import forbid_live_models as forbid_live_models
from ._scripted import FunctionModel as FunctionModel
from ._scripted import ScriptedCall as ScriptedCall
from ._scripted import ScriptedModel as ScriptedModel
from ._scripted import Turn as Turn
from ._scripted import call as call
