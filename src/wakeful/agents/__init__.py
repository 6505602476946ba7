"""Agents: their definition, the registry, resolution and handoff."""

from .agent import Agent as Agent
from .agent import BackendConfig as BackendConfig
from .agent import Delegate as Delegate
from .agent import ToolLike as ToolLike
from .backend import QUESTIONS as QUESTIONS
from .backend import Backend as Backend
from .backend import BackendAttempts as BackendAttempts
from .backend import BackendHandles as BackendHandles
from .backend import BackendInput as BackendInput
from .backend import BackendOutputs as BackendOutputs
from .backend import handoff_refusal as handoff_refusal
from .handoff import HandoffTool as HandoffTool
from .input import convert_input as convert_input
from .input import encode_input as encode_input
from .input import input_shape as input_shape
from .instructions import InstructionsFunction as InstructionsFunction
from .instructions import RunContext as RunContext
from .instructions import join_instructions as join_instructions
from .registry import Registry as Registry
from .resolved import Hook as Hook
from .resolved import ResolvedAgent as ResolvedAgent
from .resolved import digest_value as digest_value
from .resolved import resolve_child as resolve_child
from .sources import SourcePins as SourcePins

# The public names. The others are for the packages above.
__all__ = [
    "Agent",
    "BackendConfig",
    "Delegate",
    "RunContext",
]
