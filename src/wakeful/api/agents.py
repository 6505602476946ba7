"""Bodies and replies about agents."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from ..types.calls import Effect
from ..types.runs import Principal

__all__ = ["AgentView", "PermissionView", "PreviewCall", "ToolView", "WrittenTest"]


class ToolView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool that an agent's model is offered.

    `effect` and `approval` are for those who may inspect agents. `approval` says whether a person is asked about
    each call, or sometimes, as a function of the arguments decides.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    effect: Effect | None = None
    approval: Literal["never", "sometimes", "always"] | None = None


class AgentView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent, with the JSON schemas of its `input` and `output` if they aren't text.

    `instructions`, `delegates`, `handoffs` and the names of its `plugins` are for those who may inspect agents.
    Instructions that are functions are shown as empty.
    """

    id: str
    description: str = ""
    model: str = ""
    tools: tuple[ToolView, ...] = ()
    input: dict[str, Any] | None = None
    output: dict[str, Any] | None = None
    instructions: str | None = None
    delegates: tuple[str, ...] | None = None
    handoffs: tuple[str, ...] | None = None
    plugins: tuple[str, ...] | None = None


class PreviewCall(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A call to decide on, of a run that acts for a principal; `tainted` if the run has read untrusted text."""

    tool: str
    arguments: dict[str, Any] = {}
    principal: Principal | None = None
    tainted: bool = False


class PermissionView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The decision of the permission rules on a call, with the rule, its layer and its reason.

    `shadow` is the decision of the proposed policy, and its rule, if there is one.
    """

    decision: Literal["allow", "ask", "deny"]
    rule: str
    layer: str
    reason: str = ""
    shadow: str = ""


class WrittenTest(Struct, frozen=True, kw_only=True):
    """A test for pytest: the name of its file, and its text."""

    name: str
    source: str
