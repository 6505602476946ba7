"""Turns between tenants: the rules of claiming that stores share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from ..types.base import Data

__all__ = ["SUSPECT", "Candidate", "ClaimRequest", "pick_in_turns"]

# A run that lost this many workers without progress is suspect: it may kill them. A worker has one suspect run at
# a time, until that makes progress, so that few other runs are lost with it.
SUSPECT = 2


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """The arguments of `Store.claim`."""

    worker_id: str
    agents: Collection[str]
    limit: int
    lease: int
    now: int | None = None
    per_tenant: int | None = None
    per_agent: Mapping[str, int] = {}

    def can_run(self, agent: str) -> bool:
        """Whether the worker runs this agent. A dispatch without an agent is for every worker."""
        return not agent or agent in self.agents


class Candidate(Data, order=True):
    """A dispatch that may be claimed. Candidates sort as they are served within a tenant."""

    priority: int
    due_at: int
    thread: int
    tenant: str
    agent: str
    suspect: bool


def pick_in_turns(
    candidates: Iterable[Candidate],
    turns: Mapping[str, int],
    live: Mapping[tuple[str, str], int],
    request: ClaimRequest,
    *,
    suspect: bool,
) -> list[Candidate]:
    """Pick the dispatches to claim, in order: one of each tenant in a round, the longest unserved tenant first.

    `turns` has the turn in which a tenant was served last, `live` the number of claims by tenant and agent, which
    the limits include. `suspect` says that the worker has a suspect run.
    """
    queues: dict[str, list[Candidate]] = {}
    for one in sorted(candidates, reverse=True):
        queues.setdefault(one.tenant, []).append(one)
    of_tenant, of_agent = dict[str, int](), dict[str, int]()
    for (tenant, agent), count in live.items():
        of_tenant[tenant] = of_tenant.get(tenant, 0) + count
        of_agent[agent] = of_agent.get(agent, 0) + count
    order = sorted(queues, key=lambda tenant: (turns.get(tenant, 0), queues[tenant][-1]))
    picked: list[Candidate] = []
    while order and len(picked) < request.limit:
        for tenant in list(order):
            queue, full = queues[tenant], of_tenant.get(tenant, 0)
            found = None
            while queue and found is None and (request.per_tenant is None or full < request.per_tenant):
                found = queue.pop()
                allowed = request.per_agent.get(found.agent)
                full_agent = allowed is not None and of_agent.get(found.agent, 0) >= allowed
                if full_agent or (suspect and found.suspect):
                    found = None
            if found is None:
                order.remove(tenant)
                continue
            suspect = suspect or found.suspect
            of_tenant[tenant] = full + 1
            of_agent[found.agent] = of_agent.get(found.agent, 0) + 1
            picked.append(found)
            if len(picked) == request.limit:
                break
    return picked
