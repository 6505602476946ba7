"""Pools: several models under one name, of which one answers and the others stand in for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from hashlib import blake2b
from math import log
from typing import Any, Literal, Protocol, cast

from msgspec import Struct

from ..clock import Clock
from ..errors import (
    BadCredentials,
    ConfigurationError,
    ContentFiltered,
    ContextOverflow,
    InvalidRequest,
    LiveModelForbidden,
    ModelError,
    ModelNotFound,
    NoModelLeft,
    RateLimited,
    ScriptError,
    UnknownModel,
    explain,
)
from ..errors._arguments import Checked
from ._attempt import Attempt
from ._facts import ModelFacts
from ._guard import Guard, guarded
from ._modalities import lacks, media_in, with_modalities
from ._protocol import Chunk, Model, ModelRequest
from ._secrets import public, veiled

__all__ = ["Member", "Pool", "PoolModel"]

# How long a member isn't asked first after an error that won't pass by itself, and after a rate limit that didn't
# say when to come back; in seconds.
QUARANTINE = 300.0
UNSAID = 30.0

# No other member would do better: the request is at fault, or a test.
_NOT_ITS_FAULT = (
    InvalidRequest,
    ContextOverflow,
    ContentFiltered,
    NoModelLeft,
    LiveModelForbidden,
    ScriptError,
)


class Member(Struct, metaclass=Checked, frozen=True, repr_omit_defaults=True):
    """A model of a pool. The more `weight`, the more threads it serves; one with the role `failover` serves none
    before all others are out."""

    model: str | Model
    weight: float = 1.0
    role: Literal["member", "failover"] = "member"

    def __repr__(self) -> str:
        return veiled(Struct.__repr__(self))

    @property
    def name(self) -> str:
        """The model's name."""
        return public(self.model) if isinstance(self.model, str) else self.model.name


class Pool(Struct, metaclass=Checked, frozen=True, repr_omit_defaults=True):
    """Several models under one name: `Runtime(models={"fast": Pool(["openai:gpt-5-mini", "anthropic:..."])})`.

    All calls of a thread go to the same member while it is well, or with `sticky="run"` all of a run. The next one
    is asked instead, for that answer, when a member is down, refuses its key or its model, or is limited for
    longer than `waits` seconds or for nobody knows how long; at most `switches` times for one answer.
    """

    members: Sequence[str | Model | Member]
    sticky: Literal["thread", "run"] = "thread"
    waits: float = 5.0
    switches: int = 3

    def __repr__(self) -> str:
        return veiled(Struct.__repr__(self))

    def __post_init__(self) -> None:
        members: Any = self.members
        if isinstance(members, str) or not isinstance(members, Sequence):
            raise ConfigurationError(
                f"a Pool takes a list: Pool(['openai:gpt-5-mini', ...]); not {veiled(repr(members)):.80}"
            )
        models = [one.model if isinstance(one, Member) else one for one in cast(Sequence[Any], members)]
        wrong = [one for one in models if not isinstance(one, str | Pool) and not hasattr(one, "stream")]
        if wrong:
            raise ConfigurationError(
                [
                    f"a Pool's members are models, their names, or a Member of those; not {one!r:.80}"
                    for one in wrong
                ]
            )

    @property
    def name(self) -> str:
        """The pool's name where it was given none."""
        return f"pool({', '.join([member.name for member in self.all])})"

    @property
    def all(self) -> tuple[Member, ...]:
        """The members, each with its weight and role."""
        return tuple([one if isinstance(one, Member) else Member(one) for one in self.members])

    def problems(self) -> list[str]:
        """What is wrong with it, besides models that nobody knows."""
        members = self.all
        names = [member.name for member in members]
        found = [f"{name!r} is in it twice" for name in sorted({n for n in names if names.count(n) > 1})]
        if all(member.role == "failover" for member in members):
            found.append("it has no member that serves; `failover` members only stand in for others")
        for member in members:
            if member.role not in ("member", "failover"):
                found.append(f"{member.name!r} has the role {member.role!r}; there are 'member' and 'failover'")
            if not member.weight > 0:
                found.append(f"the weight of {member.name!r} must be more than 0, not {member.weight!r}")
        if self.sticky not in ("thread", "run"):
            found.append(f"sticky is 'thread' or 'run', not {self.sticky!r}")
        if self.switches < 0 or not self.waits >= 0:
            found.append("switches and waits can't be negative")
        return found


class Resolver(Protocol):
    """What a pool needs of the registry that it is in."""

    clock: Clock

    def check(self, model: Any) -> None:
        """Refuse a name that nothing answers to."""
        ...

    def is_pool(self, model: Any) -> bool:
        """Whether it is a pool, or the name of one."""
        ...

    def resolve(self, model: str | Model) -> Model:
        """The model of that name."""
        ...

    def facts_of(self, model: Model) -> ModelFacts | None:
        """What is known about the model."""
        ...

    def guard(self, model: Model) -> Guard | None:
        """What stands before the model."""
        ...


class PoolModel:
    """A pool at work, in one registry."""

    def __init__(self, name: str, pool: Pool, models: Resolver) -> None:
        self.name = name
        self.pool = pool
        self._models = models
        # Members that aren't asked first, until when, and why.
        self._out: dict[str, tuple[float, str]] = {}

    def problems(self) -> list[str]:
        """Why it can't work, found without making any model."""
        problems = self.pool.problems()
        for member in self.pool.all:
            if self._models.is_pool(member.model):
                problems.append(f"{member.name!r} is a pool itself; give its members instead")
                continue
            try:
                self._models.check(member.model)
            except (UnknownModel, ConfigurationError) as error:
                problems.append(str(error))
        return [f"pool {self.name!r}: {problem}" for problem in problems]

    @property
    def live(self) -> bool:
        """Whether a call may cost money or go over a network."""
        return any(getattr(self._models.resolve(member.model), "live", True) for member in self.pool.all)

    @property
    def facts(self) -> ModelFacts:
        """The bounds that hold whoever answers."""
        facts = [self._models.facts_of(self._models.resolve(member.model)) for member in self.pool.all]

        def least(name: str) -> int | None:
            values = [getattr(fact, name, None) for fact in facts]
            return None if None in values else min(cast(list[int], values))

        return ModelFacts(context_window=least("context_window"), max_output=least("max_output"))

    def choose(self, attempt: Attempt) -> Model:
        """The member that is asked next for this answer: the first that may be, or the one that may be soonest."""
        reasons = dict(attempt.tried)
        blind = 0
        soonest: tuple[float, Member, Model] | None = None
        for member in self._in_order(attempt) if attempt.switches <= self.pool.switches else ():
            if member.name in reasons or (model := self._ready(member, reasons)) is None:
                continue
            if (kind := lacks(self._models.facts_of(model), attempt.media)) is not None:
                reasons[member.name] = f"takes no {kind}"
                blind += 1
                continue
            guard = self._models.guard(model)
            blocked = None if guard is None else guard.blocked()
            if blocked is None or (attempt.model is model and blocked[0] <= self.pool.waits):
                attempt.turn_to(model, member.name)
                return model
            reasons[member.name] = blocked[1]
            if blocked[0] <= self.pool.waits and (soonest is None or blocked[0] < soonest[0]):
                soonest = blocked[0], member, model
        if soonest is None and blind == len(self.pool.all):
            media = " and ".join(attempt.media)
            raise InvalidRequest(
                f"pool {self.name!r}: none of its members takes {media}; add one that does, or leave it out"
            )
        if soonest is None:
            raise self._nobody(attempt, reasons)
        attempt.turn_to(soonest[2], soonest[1].name)
        return soonest[2]

    def _ready(self, member: Member, reasons: dict[str, str]) -> Model | None:
        """The member's model; None, with the reason noted, if it can't be made or isn't asked for a while."""
        now = self._models.clock.now()
        until, why = self._out.get(member.name, (0.0, ""))
        if until <= now:
            try:
                return self._models.resolve(member.model)
            except (ModelError, ConfigurationError, UnknownModel) as error:
                until, why = now + QUARANTINE * 1000, explain(error)
                self._out[member.name] = until, why
        reasons[member.name] = f"not asked for another {(until - now) / 1000:.0f} s: {why}"
        return None

    def _nobody(self, attempt: Attempt, reasons: dict[str, str]) -> NoModelLeft:
        many = attempt.switches > self.pool.switches
        head = f"after {self.pool.switches} switches" if many else "no model is left"
        names = [member.name for member in self.pool.all]
        listed = "".join([f"\n  - {name}: {reasons.get(name, 'not tried')}" for name in names])
        return NoModelLeft(f"pool {self.name!r}: {head}:{listed}")

    def leaves(self, attempt: Attempt, error: ModelError) -> bool:
        """Whether the member that was asked is left for the next one at once, and not asked again."""
        if isinstance(error, RateLimited):
            return error.retry_after is None or error.retry_after > self.pool.waits
        if not error.transient:
            return not isinstance(error, _NOT_ITS_FAULT)
        guard = None if attempt.model is None else self._models.guard(attempt.model)
        return guard is not None and guard.blocked() is not None

    def leave(self, attempt: Attempt, error: ModelError) -> None:
        """Don't ask the member again for this answer; nor first for others, while its trouble lasts."""
        attempt.leave(explain(error))
        seconds = 0.0
        if isinstance(error, RateLimited):
            seconds = UNSAID if error.retry_after is None else error.retry_after
        elif isinstance(error, BadCredentials | ModelNotFound):
            seconds = QUARANTINE
        if seconds:
            self._out[attempt.name] = (self._models.clock.now() + seconds * 1000, explain(error))

    def _in_order(self, attempt: Attempt) -> list[Member]:
        """The members as this thread or run prefers them: the same order for the same key, in every process."""
        key = attempt.thread_id if self.pool.sticky == "thread" else attempt.run_id
        return sorted(self.pool.all, key=lambda member: (member.role == "failover", -_score(key, member)))

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Have a member answer, and another where one fails before its answer begins. The loop doesn't come this
        way: it chooses by itself, and recovers."""
        attempt = Attempt(media=media_in(request))
        while True:
            model = self.choose(attempt)
            began, facts, guard = False, self._models.facts_of(model), self._models.guard(model)
            sent = request if facts is None else with_modalities(model, facts, request)
            try:
                async with aclosing(guarded(guard, model, sent, self.pool.waits)) as chunks:
                    async for chunk in chunks:
                        began = True
                        yield chunk
                return
            except ModelError as error:
                if began or not (error.transient or self.leaves(attempt, error)):
                    raise
                self.leave(attempt, error)


def _score(key: str, member: Member) -> float:
    """How much a key belongs to a member: weighted rendezvous hashing. When a member comes or goes, only the keys
    that are its own move."""
    digest = blake2b(f"{member.name}\0{key}".encode(), digest_size=8).digest()
    share = (int.from_bytes(digest, "big") + 0.5) / 2**64
    return -member.weight / log(share)
