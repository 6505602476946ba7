"""Agents as data: what they are called, what they know and what they may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ..models import Model
from ..plugins import Plugin
from ..tools import Tool
from ..types.limits import Limits, StopPolicy
from ..types.requests import ModelSettings

__all__ = ["Agent", "Delegate", "Toolish"]

Toolish = Tool | Callable[..., Any] | str


class Delegate(Struct, frozen=True):
    """An agent that another one can call as a tool. A `durable` one has a thread that any process can run, and
    its caller holds nothing meanwhile. With `background` the model may let it work on and be told when it is done,
    with `fork` it may show it the conversation."""

    agent: str
    durable: bool = False
    background: bool = False
    fork: bool = False


class Agent(Struct, frozen=True):
    """An agent: data, resolved afresh for each run.

    `model` is a name such as `vendor:model`, or a model object. `tools` are tools, plain functions, or names of
    tools given to the runtime (`*` matches any part of a name). `delegates` are agents it can call as tools,
    `handoffs` agents it can hand the conversation to. `output` is the type its final answer must have, `input` the
    type of what it is given as a delegate, where that isn't a text.
    `config` has a section for each plugin that wants one, by the plugin's name.
    """

    id: str
    model: str | Model
    instructions: str = ""
    tools: Sequence[Toolish] = ()
    delegates: Sequence[str | Delegate] = ()
    handoffs: Sequence[str] = ()
    plugins: Sequence[Plugin] = ()
    output: Any = None
    description: str = ""
    settings: ModelSettings = ModelSettings()
    limits: Limits = Limits()
    stop: Sequence[StopPolicy] = ()
    sequential: bool = False
    config: Mapping[str, Any] = {}
    input: Any = None
