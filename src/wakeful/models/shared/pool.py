"""Pools: several models under one name, with failover."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from hashlib import blake2b
from math import log
from typing import Any, Literal, Protocol, cast

from msgspec import Struct

from ...clock import Clock
from ...errors import (
    BadCredentials,
    ConfigurationError,
    ContentFiltered,
    ContextOverflow,
    InvalidRequest,
    LiveModelForbidden,
    ModelError,
    ModelNotFound,
    PoolExhausted,
    RateLimited,
    ScriptError,
    UnknownModel,
    outline,
)
from ...errors.arguments import Checked
from ...types.base import Data
from ..protocol import Chunk, Model, ModelRequest
from .attempt import Attempt
from .facts import ModelFacts
from .guard import Guard, stream_guarded
from .modalities import media_in, unaccepted_kind, with_modalities
from .secrets import redact, redact_repr

__all__ = ["Member", "Pool", "PoolModel"]

# Seconds for which a member is skipped after a permanent error, and after a rate limit without Retry-After.
QUARANTINE = 300.0
RATE_LIMIT_QUARANTINE = 30.0

# Errors of the request or of a test: another member would fail too.
_REQUEST_ERRORS = (
    InvalidRequest,
    ContextOverflow,
    ContentFiltered,
    PoolExhausted,
    LiveModelForbidden,
    ScriptError,
)


class Member(Data, metaclass=Checked, repr_omit_defaults=True):
    """A model of a pool. `weight` distributes threads; a `failover` serves only when all others are down."""

    model: str | Model
    weight: float = 1.0
    role: Literal["member", "failover"] = "member"

    def __repr__(self) -> str:
        return redact_repr(Struct.__repr__(self))

    @property
    def name(self) -> str:
        """The model's name."""
        return redact(self.model) if isinstance(self.model, str) else self.model.name


class Pool(Data, metaclass=Checked, repr_omit_defaults=True):
    """Several models under one name: `Runtime(models={"fast": Pool(["openai:gpt-5-mini", "anthropic:..."])})`.

    All calls of a thread go to the same healthy member; with `sticky="run"`, all calls of a run. An answer
    switches to the next member if one is down, rejects its key or model, or is rate limited for longer than
    `max_wait` seconds or for an unknown time; at most `max_switches` times.
    """

    members: Sequence[str | Model | Member]
    sticky: Literal["thread", "run"] = "thread"
    max_wait: float = 5.0
    max_switches: int = 3

    def __repr__(self) -> str:
        return redact_repr(Struct.__repr__(self))

    def __post_init__(self) -> None:
        members: Any = self.members
        if isinstance(members, str) or not isinstance(members, Sequence):
            raise ConfigurationError(
                f"a Pool takes a list: Pool(['openai:gpt-5-mini', ...]); not {redact_repr(repr(members)):.80}"
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
        """The name of a pool that is registered under none."""
        return f"pool({', '.join([member.name for member in self.all])})"

    @property
    def all(self) -> tuple[Member, ...]:
        """The members, each with its weight and role."""
        return tuple([one if isinstance(one, Member) else Member(one) for one in self.members])

    def problems(self) -> list[str]:
        """List the problems of the pool, except unknown models."""
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
        if self.max_switches < 0 or not self.max_wait >= 0:
            found.append("max_switches and max_wait can't be negative")
        return found


class Resolver(Protocol):
    """The part of the registry that a pool uses."""

    clock: Clock

    def check(self, model: Any) -> None:
        """Raise `UnknownModel` for an unknown name."""
        ...

    def is_pool(self, model: Any) -> bool:
        """Whether the model is a pool or the name of one."""
        ...

    def resolve(self, model: str | Model) -> Model:
        """Get the model of a name."""
        ...

    def facts_of(self, model: Model) -> ModelFacts | None:
        """Find a model's facts."""
        ...

    def guard(self, model: Model) -> Guard | None:
        """Get the guard of a model."""
        ...


class PoolModel:
    """A pool in one registry."""

    def __init__(self, name: str, pool: Pool, models: Resolver) -> None:
        self.name = name
        self.pool = pool
        self._models = models
        # Skipped members: until when, and why.
        self._quarantined: dict[str, tuple[float, str]] = {}

    def problems(self) -> list[str]:
        """List the problems of the pool, without creating any model."""
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
        """Whether a member costs money or uses a network."""
        return any(getattr(self._models.resolve(member.model), "live", True) for member in self.pool.all)

    @property
    def facts(self) -> ModelFacts:
        """The smallest limits of all members."""
        facts = [self._models.facts_of(self._models.resolve(member.model)) for member in self.pool.all]

        def least(name: str) -> int | None:
            values = [getattr(fact, name, None) for fact in facts]
            return None if None in values else min(cast(list[int], values))

        return ModelFacts(context_window=least("context_window"), max_output=least("max_output"))

    def choose(self, attempt: Attempt) -> Model:
        """Choose the next member for this answer: the first available, else the one available soonest.

        Raises `PoolExhausted`, or `InvalidRequest` if no member accepts the request's media.
        """
        reasons = dict(attempt.tried)
        blind = 0
        soonest: tuple[float, Member, Model] | None = None
        for member in self._ordered(attempt) if attempt.switches <= self.pool.max_switches else ():
            if member.name in reasons or (model := self._ready(member, reasons)) is None:
                continue
            if (kind := unaccepted_kind(self._models.facts_of(model), attempt.media)) is not None:
                reasons[member.name] = f"takes no {kind}"
                blind += 1
                continue
            guard = self._models.guard(model)
            blocked = None if guard is None else guard.blocked_for()
            if blocked is None or (attempt.model is model and blocked[0] <= self.pool.max_wait):
                attempt.use(model, member.name)
                return model
            reasons[member.name] = blocked[1]
            if blocked[0] <= self.pool.max_wait and (soonest is None or blocked[0] < soonest[0]):
                soonest = blocked[0], member, model
        if soonest is None and blind == len(self.pool.all):
            media = " and ".join(attempt.media)
            raise InvalidRequest(
                f"pool {self.name!r}: none of its members takes {media}; add one that does, or leave it out"
            )
        if soonest is None:
            raise self._exhausted(attempt, reasons)
        attempt.use(soonest[2], soonest[1].name)
        return soonest[2]

    def _ready(self, member: Member, reasons: dict[str, str]) -> Model | None:
        """Get a member's model; None, with the reason recorded, if it can't be created or is quarantined."""
        now = self._models.clock.now()
        until, why = self._quarantined.get(member.name, (0.0, ""))
        if until <= now:
            try:
                return self._models.resolve(member.model)
            except (ModelError, ConfigurationError, UnknownModel) as error:
                until, why = now + QUARANTINE * 1000, outline(error)
                self._quarantined[member.name] = until, why
        reasons[member.name] = f"not asked for another {(until - now) / 1000:.0f} s: {why}"
        return None

    def _exhausted(self, attempt: Attempt, reasons: dict[str, str]) -> PoolExhausted:
        many = attempt.switches > self.pool.max_switches
        head = f"after {self.pool.max_switches} switches" if many else "no model is left"
        names = [member.name for member in self.pool.all]
        listed = "".join([f"\n  - {name}: {reasons.get(name, 'not tried')}" for name in names])
        return PoolExhausted(f"pool {self.name!r}: {head}:{listed}")

    def should_switch(self, attempt: Attempt, error: ModelError) -> bool:
        """Whether to switch to the next member at once instead of retrying."""
        if isinstance(error, RateLimited):
            return error.retry_after is None or error.retry_after > self.pool.max_wait
        if not error.transient:
            return not isinstance(error, _REQUEST_ERRORS)
        guard = None if attempt.model is None else self._models.guard(attempt.model)
        return guard is not None and guard.blocked_for() is not None

    def give_up(self, attempt: Attempt, error: ModelError) -> None:
        """Give up the current member for this answer, and quarantine it while its error lasts."""
        attempt.give_up_model(outline(error))
        seconds = 0.0
        if isinstance(error, RateLimited):
            seconds = RATE_LIMIT_QUARANTINE if error.retry_after is None else error.retry_after
        elif isinstance(error, BadCredentials | ModelNotFound):
            seconds = QUARANTINE
        if seconds:
            self._quarantined[attempt.name] = (self._models.clock.now() + seconds * 1000, outline(error))

    def _ordered(self, attempt: Attempt) -> list[Member]:
        """Order the members for this thread or run; the same in every process."""
        key = attempt.thread_id if self.pool.sticky == "thread" else attempt.run_id
        return sorted(self.pool.all, key=lambda member: (member.role == "failover", -_score(key, member)))

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream a member's answer; switch if one fails before its answer starts.

        The loop calls `choose` itself and also recovers broken answers.
        """
        attempt = Attempt(media=media_in(request))
        while True:
            model = self.choose(attempt)
            began, facts, guard = False, self._models.facts_of(model), self._models.guard(model)
            sent = request if facts is None else with_modalities(model, facts, request)
            try:
                async with aclosing(stream_guarded(guard, model, sent, self.pool.max_wait)) as chunks:
                    async for chunk in chunks:
                        began = True
                        yield chunk
                return
            except ModelError as error:
                if began or not (error.transient or self.should_switch(attempt, error)):
                    raise
                self.give_up(attempt, error)


def _score(key: str, member: Member) -> float:
    """Score a member for a key by weighted rendezvous hashing.

    When a member is added or removed, only the keys of that member move.
    """
    digest = blake2b(f"{member.name}\0{key}".encode(), digest_size=8).digest()
    share = (int.from_bytes(digest, "big") + 0.5) / 2**64
    return -member.weight / log(share)
