"""What callers hand to the runtime, checked before anything is done with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .agents import Agent, Delegate
from .errors import ConfigurationError, InvalidDecision, InvalidInput, UsageError
from .messaging import Retry
from .stores import Retention
from .tools import ClientTool
from .tools._begun import LATEST, moment_of, seconds_of
from .types.content import clean_text
from .types.limits import CostBudget, Limits
from .types.mail import Messages
from .types.messages import Message, Producer, input_of, user_message
from .types.requests import ModelSettings, settings_problems
from .types.runs import SCHEDULE, Principal
from .types.tickets import SYSTEM, Decision, Verdict

__all__ = [
    "agents_of",
    "backends_of",
    "check_decider",
    "check_ids",
    "client_tools_of",
    "count_of",
    "cursor_of",
    "decision_of",
    "decisions_of",
    "id_of",
    "instance_of",
    "message_of",
    "one_of",
    "options_of",
    "priority_of",
    "request_of",
    "retention_of",
    "settings_of",
    "table_of",
    "thread_of",
    "time_of",
    "transports_of",
]

MAX_THREAD_ID_BYTES = 128

# Databases have no larger numbers.
_LARGEST = 2**63 - 1


def client_tools_of(given: Any) -> Sequence[ClientTool]:
    """The tools that a run's client has; refused if they aren't a list of such."""
    if not isinstance(given, Sequence) or not all(isinstance(tool, ClientTool) for tool in cast(Any, given)):
        raise UsageError(f"client_tools is a list of ClientTool(...), not {given!r:.80}")
    return cast(Sequence[ClientTool], given)


def instance_of(value: Any, kind: type[Any], name: str) -> None:
    """Refuse a value that isn't None and not of the kind."""
    if value is not None and not isinstance(value, kind):
        raise UsageError(f"{name} must be a {kind.__name__}, not {value!r:.80}")
    if isinstance(value, Principal):
        _check_principal(value)


def _check_principal(principal: Principal) -> None:
    """Refuse a principal that couldn't be read again: it is kept with the thread."""
    try:
        msgspec.json.decode(msgspec.json.encode(principal), type=Principal)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"a principal has an id and a kind, both texts, and claims, a dict of JSON: {error}; "
            f"not {principal!r:.80}"
        ) from None


def one_of(value: Any, known: Sequence[str], name: str) -> None:
    """Refuse a word that isn't None and not one of these."""
    if value is not None and value not in known:
        raise UsageError(f"{name} is one of {', '.join(known)}, not {value!r:.80}")


def table_of(value: Any, kind: str, name: str) -> None:
    """Refuse what isn't None and no mapping by names."""
    if value is not None and not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} is a dict of names and a {kind}(...) for each, not {value!r:.80}")


def options_of(
    *, tools: Any, plugins: Any, keys: Any, models: Any, clock: Any, execute: Any, retention: Any, retry: Any
) -> None:
    """Refuse what a runtime's options can't be."""
    wrong = [
        f"{name} is a list, not {value!r:.80}"
        for name, value in (("tools", tools), ("plugins", plugins), ("keys", keys))
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable)
    ]
    if models is not None and not isinstance(models, Mapping):
        wrong.append(f"models is a dict of names and a model, a pool or a vendor for each, not {models!r:.80}")
    if clock is not None and not all(callable(getattr(clock, name, None)) for name in ("now", "call_later")):
        wrong.append(f"clock is a Clock, with now() and call_later(...), not {clock!r:.80}")
    if not isinstance(execute, bool):
        wrong.append(f"execute is True or False, not {execute!r:.80}")
    wrong += [] if retention is None else _retention_problems(retention)
    if not isinstance(retry, Retry):
        wrong.append(f"retry is a Retry(...), not {retry!r:.80}")
    if wrong:
        raise ConfigurationError(wrong)


def retention_of(retention: Any) -> None:
    """Refuse what can't be kept by; a negative age would be of what is yet to come."""
    if wrong := _retention_problems(retention):
        raise UsageError("; ".join(wrong))


def _retention_problems(retention: Any) -> list[str]:
    if not isinstance(retention, Retention):
        return [f"retention is a Retention(...), not {retention!r:.80}"]
    given: dict[str, Any] = {name: getattr(retention, name) for name in retention.__struct_fields__}
    return [
        f"Retention.{name} is {'a count' if name.endswith('_kept') else 'an age in milliseconds'}, a whole number "
        f"and not negative, or None to keep it for ever; not {value!r:.80}"
        for name, value in given.items()
        if value is not None and (type(value) is not int or not 0 <= value <= _LARGEST)
    ]


def settings_of(settings: Any) -> None:
    """Refuse a run's settings that no vendor would take."""
    instance_of(settings, ModelSettings, "settings")
    if settings is None:
        return
    if problems := settings_problems(settings):
        raise UsageError("; ".join(problems))
    try:
        msgspec.json.encode(settings)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"a run's settings are kept with it, so settings.extra must be JSON: {error}") from None


def twice(names: Sequence[str]) -> list[str]:
    """Which client tools have a name that another has."""
    return [f"two client tools are named {name!r}" for name in dict.fromkeys(names) if names.count(name) > 1]


def priority_of(priority: Any) -> int:
    """A priority, checked: the lower, the sooner."""
    if type(priority) is not int or not 0 <= priority <= 255:
        raise UsageError(f"a priority is 0 to 255, the lowest first, not {priority!r:.80}")
    return priority


def time_of(delay: Any, at: Any, now: int) -> int | None:
    """When something is to begin, in milliseconds: after so many seconds, at a time, or at once."""
    if delay is not None and at is not None:
        raise UsageError("give a delay or a time, not both")
    if delay is not None:
        seconds = seconds_of(delay, "a delay")
        return min(now + round(seconds * 1000), LATEST) if seconds else None
    return None if at is None else moment_of(at, "a time")


def agents_of(agents: Any) -> list[Agent]:
    """The agents that a runtime is made of."""
    if isinstance(agents, Agent):
        raise ConfigurationError("Runtime takes a list of agents: Runtime([agent])")
    if isinstance(agents, str | Mapping) or not isinstance(agents, Iterable):
        raise ConfigurationError(f"Runtime takes a list of agents, not {agents!r:.80}")
    found = list(cast(Iterable[Any], agents))
    wrong: list[str] = []
    for agent in found:
        if isinstance(agent, Agent):
            wrong += _fields_of(agent)
        else:
            wrong.append(f"Runtime takes agents, not {agent!r:.80}")
    if wrong:
        raise ConfigurationError(wrong)
    return found


_LISTS = ("tools", "delegates", "handoffs", "plugins", "stop")
_KINDS: dict[str, type[Any]] = {
    "instructions": str,
    "description": str,
    "settings": ModelSettings,
    "limits": Limits,
    "config": Mapping,
    "messages": Messages,
}


def _fields_of(agent: Agent) -> list[str]:
    """What is wrong with the kinds of an agent's fields."""
    if _odd(agent.id):
        return [f"an agent's id is a text, not {agent.id!r:.80}"]
    where, wrong = f"agent {agent.id!r}", list[str]()
    for name in _LISTS:
        value = getattr(agent, name)
        if value is not None and not isinstance(value, list | tuple):
            wrong.append(f"{where}: {name} is a list, not {value!r:.80}")
    for name, kind in _KINDS.items():
        value = getattr(agent, name)
        if not isinstance(value, kind):
            wrong.append(f"{where}: {name} is a {kind.__name__}, not {value!r:.80}")
        elif isinstance(value, str) and clean_text(value) != value:
            wrong.append(f"{where}: {name} has half a character in it (a lone surrogate), {value!r:.80}; mend it")
    if wrong:
        return wrong
    wrong += [f"{where}: {problem}" for problem in settings_problems(agent.settings)]
    if wrong:
        return wrong
    values: list[Any] = [agent.settings, agent.limits, agent.messages, *(agent.stop or ())]
    for value in values:
        if not isinstance(value, Struct):
            wrong.append(f"{where}: stop takes policies such as WallTime(60), not {value!r:.80}")
            continue
        try:
            msgspec.convert(msgspec.to_builtins(value), type(value))
        except msgspec.ValidationError as error:
            hint = "; money is whole micro-units: half a dollar is 500_000" if type(value) is CostBudget else ""
            wrong.append(f"{where}: {type(value).__name__}: {error}{hint}")
    if not isinstance(cast(Any, agent.sequential), bool):
        wrong.append(f"{where}: sequential is True or False, not {agent.sequential!r:.80}")
    for how in [other for other in agent.delegates or () if isinstance(other, Delegate)]:
        for name in ("durable", "background", "fork"):
            if not isinstance(getattr(how, name), bool):
                wrong.append(
                    f"{where}: Delegate({how.agent!r}): {name} is True or False, not {getattr(how, name)!r:.80}"
                )
    for name in ("input", "output"):
        if getattr(agent, name) is object:
            wrong.append(f"{where}: {name} is object, which says nothing; give a type such as str or a dataclass")
    delegates = [other.agent if isinstance(other, Delegate) else other for other in agent.delegates or ()]
    wrong += [
        f"{where}: delegates and handoffs are agents' ids, not {other!r:.80}{_id_hint(other)}"
        for other in (*delegates, *(agent.handoffs or ()))
        if _odd(other)
    ]
    return wrong


def _id_hint(other: Any) -> str:
    return f"; give its id, {other.id!r:.80}" if isinstance(other, Agent) else ""


def _odd(value: Any) -> bool:
    return not isinstance(value, str)


def backends_of(backends: Any) -> list[Any]:
    """The factories of a runtime's backends."""
    if isinstance(backends, str | Mapping) or not isinstance(backends, Iterable):
        raise ConfigurationError(f"backends is a list of backend factories, not {backends!r:.80}")
    found = list(cast(Iterable[Any], backends))
    for factory in found:
        name = getattr(factory, "name", None)
        if isinstance(factory, type) or not (
            isinstance(name, str) and name and callable(getattr(factory, "build", 0))
        ):
            raise ConfigurationError(
                f"backends takes factories: objects with a name and build(endpoint), not {factory!r:.80}"
            )
    return found


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}\Z")


def transports_of(transports: Any) -> dict[str, Any]:
    """The transports of a runtime, by the names that addresses begin with."""
    if transports is None:
        return {}
    instance_of(transports, Mapping, "transports")
    found = dict(cast(Mapping[Any, Any], transports))
    for name, transport in found.items():
        if not isinstance(name, str) or not _SCHEME.match(name):
            raise ConfigurationError(f"a transport is named as addresses begin, such as 'https', not {name!r:.80}")
        if not callable(getattr(transport, "deliver", None)):
            raise ConfigurationError(f"transport {name!r}: {transport!r:.80} has no async deliver(message)")
    return found


def thread_of(thread: Any) -> str:
    """A thread id that a caller chose."""
    if not isinstance(thread, str):
        raise InvalidInput(f"a thread id is a text, not {thread!r:.80}")
    try:
        size = len(thread.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"a thread id is a text that UTF-8 can hold, not {thread!r:.60}: {error.reason}"
        ) from None
    if not 1 <= size <= MAX_THREAD_ID_BYTES:
        raise InvalidInput(f"a thread id has 1 to {MAX_THREAD_ID_BYTES} bytes, not {size}: {thread!r:.60}")
    if thread.startswith(SCHEDULE):
        raise InvalidInput(
            f"thread {thread!r} would be a schedule's own, where nothing else runs; take an id that doesn't begin "
            f"with {SCHEDULE!r}"
        )
    return thread


def id_of(value: Any, what: str) -> str:
    """The id by which a caller names something; often the thing itself is given, and its id is meant."""
    if isinstance(value, str):
        if clean_text(value) != value:
            raise UsageError(
                f"the {what} {value!r:.80} has half a character in it (a lone surrogate); no id has one"
            )
        return value
    names = [name for name in (f"{what}_id", "id") if isinstance(getattr(value, name, None), str)]
    hint = f"; give its .{names[0]}" if names else ""
    raise UsageError(f"the {what} is named by its id, a text, not {value!r:.80}{hint}")


def check_ids(**given: Any) -> None:
    """Refuse what isn't None and no id, each by what it names."""
    for what, value in given.items():
        if value is not None:
            id_of(value, what)


def message_of(input: Any, principal: Principal | None, message_id: Any = None) -> Message:
    """The user message that an input is; `message_id` is what its sender knows it by."""
    producer = None
    if principal is not None or message_id is not None:
        check_ids(message=message_id)
        producer = Producer(principal_id=None if principal is None else principal.id, message_id=message_id)
    return user_message(input_of(input), producer=producer)


# A place in the log, or one in the answer that is being streamed behind it: how often that was begun, and how far
# it came.
_CURSOR = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18}\.[0-9]{1,18})?")


def cursor_of(after: Any) -> tuple[int, tuple[int, int] | None]:
    """What a cursor says: a place in the log, and in the answer behind it the attempt and how far that came."""
    if not _CURSOR.fullmatch(str(after)):
        raise UsageError(
            "after is a cursor, such as event.cursor or 0 for the beginning: a number like 12, or within an "
            f"answer 12.1.340; not {after!r:.80}"
        )
    seq, *within = map(int, str(after).split("."))
    return seq, (within[0], within[1]) if within else None


def count_of(value: Any, name: str) -> int | None:
    """A number of things that a caller wants, at least one, or None for all."""
    if value is not None and (not isinstance(value, int) or value < 1):
        raise UsageError(f"{name} is a positive number, not {value!r:.80}")
    return None if value is None else min(value, _LARGEST)


def request_of(request_id: Any) -> str | None:
    """A request id that a caller chose."""
    if request_id is not None and (not isinstance(request_id, str) or not 1 <= len(request_id) <= 200):
        raise UsageError(f"a request id is a text of 1 to 200 characters, not {request_id!r:.80}")
    if request_id is not None:
        id_of(request_id, "request")
    return request_id


def decision_of(decision: Any) -> Decision:
    """A decision that a caller made, checked but for its value, which its ticket knows."""
    if not isinstance(decision, Decision) or _odd(decision.ticket_id):
        raise InvalidDecision(
            f"resume takes decisions, such as ticket.approve() or ticket.deny(), not {decision!r:.80}"
        )
    given: Any = decision
    if given.verdict not in get_args(Verdict):
        raise InvalidDecision(f"the verdict of a decision is approve or deny, not {given.verdict!r:.80}")
    for name, value in (("reason", given.reason), ("id", given.id), ("principal_id", given.principal_id)):
        if _odd(value) and not (name == "principal_id" and value is None):
            raise InvalidDecision(f"the {name} of a decision is a text, not {value!r:.80}")
    check_ids(ticket=given.ticket_id, decision=given.id, principal=given.principal_id)
    # As in input, half a character is mended.
    return replace(decision, reason=clean_text(decision.reason))


def check_decider(who: str | None) -> None:
    """Refuse a decision in the name of who decides at a deadline."""
    if who == SYSTEM:
        raise InvalidDecision(f"{SYSTEM!r} is who decides at a deadline; no principal may have that id")


def decisions_of(
    decisions: Sequence[Any], answers: Any, principal: Principal | None, request_id: str | None
) -> list[Decision]:
    """The decisions that a caller gives, answers included."""
    instance_of(principal, Principal, "principal")
    if answers is not None and not isinstance(answers, Mapping):
        raise InvalidDecision(f"answers maps ticket or call ids to values, not {answers!r:.80}")
    items = cast(Mapping[str, Any], answers or {}).items()
    given = [*decisions, *[Decision(key, value=value) for key, value in items]]
    if not given:
        raise UsageError("resume needs a decision: ticket.approve(), ticket.deny(), ticket.answer(...)")
    given = [decision_of(decision) for decision in given]
    for who in (None if principal is None else principal.id, *[decision.principal_id for decision in given]):
        check_decider(who)
    if principal is not None:
        given = [replace(decision, principal_id=principal.id) for decision in given]
    if request_id is not None:
        given = [replace(decision, id=f"{request_id}:{place}") for place, decision in enumerate(given)]
    return given
