"""Models: the protocol, scripted models, pools, and the registry of names."""

from ..types.requests import CodeExecution as CodeExecution
from ..types.requests import FileSearch as FileSearch
from ..types.requests import ImageGeneration as ImageGeneration
from ..types.requests import WebFetch as WebFetch
from ..types.requests import WebSearch as WebSearch
from .protocol import CallChunk as CallChunk
from .protocol import CallDeltaChunk as CallDeltaChunk
from .protocol import CallStartChunk as CallStartChunk
from .protocol import Chunk as Chunk
from .protocol import Model as Model
from .protocol import ModelRequest as ModelRequest
from .protocol import PartChunk as PartChunk
from .protocol import ReasoningChunk as ReasoningChunk
from .protocol import StopChunk as StopChunk
from .protocol import TextChunk as TextChunk
from .protocol import UsageChunk as UsageChunk
from .protocol import chunks_from as chunks_from
from .protocol import stream_type_error as stream_type_error
from .registry import ModelAccess as ModelAccess
from .registry import ModelRegistry as ModelRegistry
from .registry import VendorFactory as VendorFactory
from .registry import check_live as check_live
from .registry import forbid_live_models as forbid_live_models
from .scripted import FunctionModel as FunctionModel
from .scripted import ScriptedCall as ScriptedCall
from .scripted import ScriptedModel as ScriptedModel
from .scripted import Turn as Turn
from .scripted import call as call
from .shared.attempt import Attempt as Attempt
from .shared.facts import LongPrices as LongPrices
from .shared.facts import ModelFacts as ModelFacts
from .shared.facts import shipped_facts as shipped_facts
from .shared.guard import Permit as Permit
from .shared.guard import stream_guarded as stream_guarded
from .shared.modalities import media_in as media_in
from .shared.modalities import with_modalities as with_modalities
from .shared.pool import Member as Member
from .shared.pool import Pool as Pool
from .shared.pool import PoolModel as PoolModel
from .shared.rate_limits import RateLimit as RateLimit
from .shared.retry import RetryPolicy as RetryPolicy

# The public names. The others are for the packages above.
__all__ = [
    "CallChunk",
    "CallDeltaChunk",
    "CallStartChunk",
    "Chunk",
    "CodeExecution",
    "FileSearch",
    "FunctionModel",
    "ImageGeneration",
    "LongPrices",
    "Member",
    "Model",
    "ModelFacts",
    "ModelRequest",
    "PartChunk",
    "Pool",
    "RateLimit",
    "ReasoningChunk",
    "RetryPolicy",
    "ScriptedCall",
    "ScriptedModel",
    "StopChunk",
    "TextChunk",
    "Turn",
    "UsageChunk",
    "VendorFactory",
    "WebFetch",
    "WebSearch",
    "call",
    "chunks_from",
    "forbid_live_models",
    "shipped_facts",
]
