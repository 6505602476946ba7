"""The rules of claiming that stores share: whose turn it is, how much may run at once, and pauses that grow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

__all__ = [
    "FIRST_PAUSE",
    "LONGEST_PAUSE",
    "PROGRESS",
    "SUSPECT",
    "Asked",
    "Ready",
    "after_death",
    "backoff",
    "died",
    "in_turns",
]

FIRST_PAUSE = 250
LONGEST_PAUSE = 30_000

# A run made progress since it was claimed if it began so many steps: then it closed one that it also began. A run
# that kills its worker in every step it begins makes none.
PROGRESS = 2

# A run that lost so many workers without progress is suspect: it may be what ends them. A worker has one such run
# at a time, until that makes progress; so whoever runs beside one that ends its workers loses no more than these.
SUSPECT = 2


class Asked(Struct, frozen=True, kw_only=True):
    """What a worker asks for when it claims."""

    worker_id: str
    agents: Collection[str]
    limit: int
    lease: int
    now: int | None = None
    per_tenant: int | None = None
    per_agent: Mapping[str, int] = {}

    def knows(self, agent: str) -> bool:
        """Whether the worker can run the agent; a dispatch that names none is for everybody."""
        return not agent or agent in self.agents


class Ready(Struct, frozen=True, gc=False, order=True):
    """A dispatch that may be claimed. They sort as they are served within a tenant."""

    priority: int
    due_at: int
    thread: int
    tenant: str
    agent: str
    suspect: bool


def in_turns(
    ready: Iterable[Ready],
    turns: Mapping[str, int],
    live: Mapping[tuple[str, str], int],
    asked: Asked,
    *,
    suspect: bool,
) -> list[Ready]:
    """The dispatches to claim, in order: one of each tenant in a round, who was served longest ago first, as far
    as the limits leave room beside what is `live` by tenant and agent. `suspect` says that the worker has a run
    that is."""
    queues: dict[str, list[Ready]] = {}
    for one in sorted(ready, reverse=True):
        queues.setdefault(one.tenant, []).append(one)
    of_tenant, of_agent = dict[str, int](), dict[str, int]()
    for (tenant, agent), count in live.items():
        of_tenant[tenant] = of_tenant.get(tenant, 0) + count
        of_agent[agent] = of_agent.get(agent, 0) + count
    order = sorted(queues, key=lambda tenant: (turns.get(tenant, 0), queues[tenant][-1]))
    picked: list[Ready] = []
    while order and len(picked) < asked.limit:
        for tenant in list(order):
            queue, full = queues[tenant], of_tenant.get(tenant, 0)
            found = None
            while queue and found is None and (asked.per_tenant is None or full < asked.per_tenant):
                found = queue.pop()
                allowed = asked.per_agent.get(found.agent)
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
            if len(picked) == asked.limit:
                break
    return picked


def backoff(attempts: int) -> int:
    """How long to wait after so many attempts, in milliseconds."""
    return min(FIRST_PAUSE * 2 ** max(attempts - 1, 0), LONGEST_PAUSE)


def after_death(attempts: int, mark: int, step: int) -> int:
    """How many attempts there were once an owner died, whose run was at `mark` when it was claimed."""
    return 1 if step - mark >= PROGRESS else attempts + 1


def died(attempts: int) -> str:
    """Why a dispatch is dead whose owners died."""
    return (
        f"the process that ran it ended {attempts} times without getting further; look at what its open step "
        "does, then retry or cancel the run"
    )
