"""The definition of an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, cast

from msgspec import Struct

from ..context import WindowPolicy
from ..errors.arguments import Checked, checked
from ..models import Model, Pool, RetryPolicy
from ..models.shared.secrets import redact_repr
from ..plugins import Guardrail, Plugin
from ..tools import Tool, ToolSource
from ..types.base import Data
from ..types.generics import Output, RemoteOutput, TypeForm
from ..types.limits import Limits, StopPolicy
from ..types.mail import MailPolicy
from ..types.requests import ModelSettings, ServerToolSpec
from .instructions import InstructionsFunction

__all__ = ["Agent", "BackendConfig", "Delegate", "ToolLike"]

# No output type, which means text. As a default, a bare None would be inferred as the type None.
_TEXT: TypeForm[str] | None = cast(Any, None)

ToolLike = Tool | Callable[..., Any] | ToolSource | str


class Delegate(Data, metaclass=Checked):
    """An agent that another agent can call as a tool.

    - `durable`: the delegate has its own thread, which any worker can run; the waiting caller holds no resources.
    - `background`: the model may start it in the background, and is told when it is done.
    - `fork`: the model may pass it the conversation.
    """

    agent: str
    durable: bool = False
    background: bool = False
    fork: bool = False


class _Hidden:
    def __repr__(self) -> str:
        return "***"


_HIDDEN = _Hidden()


class BackendConfig(Data, metaclass=Checked, repr_omit_defaults=True):
    """The configuration of a backend: the name of its factory, and the endpoint."""

    name: str
    endpoint: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        endpoint: Any = self.endpoint
        if isinstance(endpoint, Mapping) and isinstance(self.endpoint.get("auth"), str | Mapping):
            # Plain data has no `repr` that hides credentials.
            return repr(BackendConfig(self.name, {**self.endpoint, "auth": _HIDDEN}))
        return redact_repr(Struct.__repr__(self))


class Agent(Data, Generic[Output], metaclass=Checked, repr_omit_defaults=True):
    """An agent, as data.

    - `model`: a name such as `vendor:model`, a model object, or a pool of models.
    - `instructions`: a text, a function of a `RunContext` (sync or async) that returns one, or a list of both.
      Functions are called for each request.
    - `tools`: tools, plain functions, tool sources such as MCP servers, or names of the runtime's tools and
      sources (`*` matches any part of a name).
    - `server_tools`: tools that the model's vendor runs within an answer, such as `WebSearch()`.
    - `delegates`: agents that it can call as tools; `handoffs`: agents that it can hand the conversation to.
    - `output`: the type of its final answer. `validators`: functions of the output and a
      `HookContext`, sync or async, that raise `OutputRejected` to send the answer back to the model.
    - `guardrails`: checks that block or rewrite its input and its answers, in turn.
    - `input`: the type of its input as a delegate and for `run`, if that isn't text.
    - `config`: sections of plugins, by the plugin's name.
    - `mail`: its allowed recipients and senders.
    - `retry`: overrides the runtime's timeouts and retries of model requests.
    - `expose_errors`: shows the text of unexpected exceptions to the model and to callers; for development.
    - `window`: the policy for conversations longer than the model's window; None sends them whole.
    - `backend`: executes the agent instead of the loop; an object or a `BackendConfig`. Such an agent needs no
      model, and `model` is only the name in its events.
    """

    id: str
    model: str | Model | Pool = ""
    instructions: str | InstructionsFunction | Sequence[str | InstructionsFunction] = ""
    tools: Sequence[ToolLike] = ()
    delegates: Sequence[str | Delegate] = ()
    handoffs: Sequence[str] = ()
    plugins: Sequence[Plugin] = ()
    output: TypeForm[Output] | None = None
    description: str = ""
    settings: ModelSettings = ModelSettings()
    limits: Limits = Limits()
    stop: Sequence[StopPolicy] = ()
    sequential: bool = False
    config: Mapping[str, Any] = {}
    input: Any = None
    backend: Any = None
    mail: MailPolicy = MailPolicy()
    retry: RetryPolicy | None = None
    window: WindowPolicy | None = WindowPolicy()
    validators: Sequence[Callable[..., Any]] = ()
    guardrails: Sequence[Guardrail] = ()
    server_tools: Sequence[ServerToolSpec] = ()
    expose_errors: bool = False

    def __repr__(self) -> str:
        return redact_repr(Struct.__repr__(self))

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
        connect_timeout: float | None = None,
        allow_private: bool = False,
        hosts: Sequence[str] = (),
        output: TypeForm[RemoteOutput] | None = _TEXT,
        plugins: Sequence[Plugin] = (),
        stop: Sequence[StopPolicy] = (),
    ) -> Agent[RemoteOutput]:
        """Define an agent behind A2A. It is contacted when it is first used.

        - `a2a`: its base URL, or the URL of its card.
        - `auth`: a `Bearer`, `ApiKey` or `OAuth2` of `wakeful.backends.a2a`.
        - `effect`: what to do about a message of unknown outcome, as for a tool; by default it is never sent
          again.
        - `timeout`: the limit of one exchange in seconds, 300 by default.
        - `connect_timeout`: how long an unreachable remote is retried before a task starts, 5 seconds by default.
        - `allow_private`: permits loopback and private networks.
        - `hosts`: hosts beside that of the URL that may get the credentials, if the card names one of them.
        """
        given = {
            "auth": auth,
            "timeout": timeout,
            "connect_timeout": connect_timeout,
            "allow_private": allow_private,
            "hosts": tuple(hosts),
        }
        kept = {name: value for name, value in given.items() if value not in (None, False, ())}
        config = BackendConfig("a2a", {"url": a2a, "effect": effect, **kept})
        return Agent(id, description=description, output=output, plugins=plugins, stop=stop, backend=config)
