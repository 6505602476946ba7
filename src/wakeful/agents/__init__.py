"""Agents: how they are written, and how they are made ready to run."""

from ._agent import Agent as Agent
from ._agent import Delegate as Delegate
from ._agent import Toolish as Toolish
from ._handoff import HandoffTool as HandoffTool
from ._registry import Hook as Hook
from ._registry import Registry as Registry
from ._registry import ResolvedAgent as ResolvedAgent
from ._registry import digest as digest
