"""Agents as data: what they are called, what they know and what they may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from ..context import Context
from ..errors._arguments import Checked, checked
from ..models import Model, Patience, Pool
from ..models._secrets import veiled
from ..plugins import Plugin
from ..tools import Tool
from ..types.limits import Limits, StopPolicy
from ..types.mail import Messages
from ..types.requests import ModelSettings

__all__ = ["Agent", "BackendConfig", "Delegate", "Toolish"]

Toolish = Tool | Callable[..., Any] | str


class Delegate(Struct, metaclass=Checked, frozen=True):
    """An agent that another one can call as a tool. A `durable` one has a thread that any process can run, and
    its caller holds nothing meanwhile. With `background` the model may let it work on and be told when it is done,
    with `fork` it may show it the conversation."""

    agent: str
    durable: bool = False
    background: bool = False
    fork: bool = False


class _Hidden:
    def __repr__(self) -> str:
        return "***"


_HIDDEN = _Hidden()


class BackendConfig(Struct, metaclass=Checked, frozen=True, repr_omit_defaults=True):
    """A backend as data: the name of its factory, and the endpoint that the factory builds it for."""

    name: str
    endpoint: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        endpoint: Any = self.endpoint
        if isinstance(endpoint, Mapping) and isinstance(self.endpoint.get("auth"), str | Mapping):
            # Credentials as data don't hide themselves.
            return repr(BackendConfig(self.name, {**self.endpoint, "auth": _HIDDEN}))
        return veiled(Struct.__repr__(self))


class Agent(Struct, metaclass=Checked, frozen=True, repr_omit_defaults=True):
    """An agent: data, resolved afresh for each run.

    `model` is a name such as `vendor:model`, a model object, or a pool of them. `tools` are tools, plain
    functions, or names of tools given to the runtime (`*` matches any part of a name). `delegates` are agents it
    can call as tools, `handoffs` agents it can hand the conversation to. `output` is the type its final answer
    must have, `input` the type of what it is given as a delegate, and may be given by `run`, where that isn't a
    text. `config` has a section for each plugin that wants one, by the plugin's name. `messages` says whom it may
    write to, and who may write to it. `patience` says how long its model is waited for and how often it is asked
    again, where that isn't as the runtime has it. `context` says what becomes of a conversation that outgrows the
    model's window; with None it is sent as it is.

    An agent with a `backend`, an object or its config, is executed by that and not by the loop: it needs no
    model, and `model` is only a name that its events show.
    """

    id: str
    model: str | Model | Pool = ""
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
    backend: Any = None
    messages: Messages = Messages()
    patience: Patience | None = None
    context: Context | None = Context()

    def __repr__(self) -> str:
        return veiled(Struct.__repr__(self))

    @classmethod
    @checked
    def remote(
        cls,
        id: str,
        *,
        a2a: str,
        auth: Any = None,
        effect: Literal["pure", "idempotent", "once"] = "once",
        description: str = "",
        timeout: float | None = None,
        patience: float | None = None,
        allow_private: bool = False,
        output: Any = None,
        plugins: Sequence[Plugin] = (),
        stop: Sequence[StopPolicy] = (),
    ) -> Agent:
        """An agent that answers behind A2A: `a2a` is its base URL, or the URL of its card. Nothing is loaded or
        asked before the agent is used.

        `auth` is a `Bearer`, an `ApiKey` or an `OAuth2` of `wakeful.backends.a2a`. `effect` says what becomes of a
        message whose fate nobody knows, as a tool's does: by default it is never sent again. `timeout` are the
        seconds for an exchange, 300 by default, `patience` those for which a remote that was given nothing to do
        yet and can't be reached is tried again, 5 by default. `allow_private` lets it be on this host or network.
        """
        given = {"auth": auth, "timeout": timeout, "patience": patience, "allow_private": allow_private}
        kept = {name: value for name, value in given.items() if value is not None and value is not False}
        config = BackendConfig("a2a", {"url": a2a, "effect": effect, **kept})
        return cls(id, description=description, output=output, plugins=plugins, stop=stop, backend=config)
