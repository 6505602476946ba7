"""Authorization: one hook decides what a caller may do with which resource."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..types.base import Data
from .caller import Caller

__all__ = ["Allow", "Authorize", "Deny", "Filter", "Resource", "Verdict", "admits", "owners_only"]


class Resource(Data, omit_defaults=True):
    """The object of an action: its kind, such as `run`, its id, its owner's principal id and its agent.

    A list has no id: the verdict narrows it.
    """

    kind: str
    id: str = ""
    owner: str | None = None
    agent: str | None = None


class Allow(Data):
    """The action is allowed."""


class Deny(Data):
    """The action is refused. `reason` is shown to callers who may read the resource."""

    reason: str = ""


class Filter(Data, omit_defaults=True):
    """The action is allowed on resources of this owner and of these agents; None stands for any.

    Lists are narrowed by it inside the query.
    """

    owner: str | None = None
    agents: tuple[str, ...] | None = None


Verdict = Allow | Deny | Filter
Authorize = Callable[[Caller, str, Resource], Awaitable[Verdict]]


async def owners_only(caller: Caller, action: str, resource: Resource) -> Verdict:
    """The default: callers reach what belongs to their principal, and operators everything of their tenant.

    Agents belong to nobody: a caller reaches those that its credential permits.
    """
    if (
        resource.kind == "agent"
        or caller.principal is None
        or caller.may("ops:write")
        or (_is_read(action) and caller.may("ops:read"))
    ):
        return Allow() if caller.agents is None else Filter(agents=caller.agents)
    return Filter(caller.principal.id, caller.agents)


def admits(verdict: Verdict, resource: Resource) -> bool:
    """Whether a verdict permits the action on this resource."""
    match verdict:
        case Allow():
            return True
        case Deny():
            return False
        case Filter(owner, agents):
            is_owned = owner is None or resource.owner == owner
            return is_owned and (agents is None or resource.agent is None or resource.agent in agents)


def _is_read(action: str) -> bool:
    return action.partition(":")[2] in ("read", "inspect")
