"""Agents: how they are written, and how they are made ready to run."""

from ._agent import Agent as Agent
from ._agent import BackendConfig as BackendConfig
from ._agent import Delegate as Delegate
from ._agent import Toolish as Toolish
from ._backend import QUESTIONS as QUESTIONS
from ._backend import Backend as Backend
from ._backend import BackendHandles as BackendHandles
from ._backend import BackendOutputs as BackendOutputs
from ._backend import handoff_refusal as handoff_refusal
from ._handoff import HandoffTool as HandoffTool
from ._input import input_shape as input_shape
from ._input import packed_input as packed_input
from ._input import said_to as said_to
from ._registry import Registry as Registry
from ._resolved import Hook as Hook
from ._resolved import ResolvedAgent as ResolvedAgent
from ._resolved import child_agent as child_agent
from ._resolved import digest as digest
