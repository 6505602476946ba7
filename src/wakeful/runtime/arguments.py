"""Checks and conversions of callers' arguments, before anything is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast, get_args

import msgspec
from msgspec.structs import replace

from ..errors import ConfigurationError, InvalidDecision, InvalidInput, UsageError
from ..messaging import DeliveryPolicy
from ..stores import Retention, UsageKey
from ..tools import ClientTool
from ..tools.checks import LATEST, to_milliseconds, to_seconds
from ..types.content import clean_text
from ..types.ids import new_id
from ..types.inbox import Request
from ..types.messages import Message, Producer, parse_input, user_message
from ..types.requests import ModelSettings, settings_problems
from ..types.runs import RIGHTS, SCHEDULE, Author, Principal
from ..types.tickets import SYSTEM, Decision, Verdict

__all__ = [
    "check_author",
    "check_backends",
    "check_choice",
    "check_client_tools",
    "check_count",
    "check_decision",
    "check_history",
    "check_id",
    "check_ids",
    "check_instance",
    "check_options",
    "check_priority",
    "check_request_id",
    "check_retention",
    "check_settings",
    "check_table",
    "check_thread_id",
    "check_transports",
    "check_usage_keys",
    "duplicates_in",
    "make_decisions",
    "make_message",
    "parse_cursor",
    "parse_time",
]

MAX_THREAD_ID_BYTES = 128

# The largest integer of SQLite and Postgres.
_LARGEST = 2**63 - 1


def check_client_tools(given: Any) -> Sequence[ClientTool]:
    """Check the client tools of a run."""
    if not isinstance(given, Sequence) or not all(isinstance(tool, ClientTool) for tool in cast(Any, given)):
        raise UsageError(f"client_tools is a list of ClientTool(...), not {given!r:.80}")
    return cast(Sequence[ClientTool], given)


def check_instance(value: Any, kind: type[Any], name: str) -> None:
    """Refuse a value that is neither None nor an instance of the class."""
    if value is not None and not isinstance(value, kind):
        raise UsageError(f"{name} must be a {kind.__name__}, not {value!r:.80}")
    if isinstance(value, Principal):
        _check_principal(value)


def _check_principal(principal: Principal) -> None:
    """Refuse a principal that can't be decoded again: the thread stores it."""
    try:
        msgspec.json.decode(msgspec.json.encode(principal), type=Principal)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            "a principal has an id and a kind, both texts, claims, a dict of JSON, and groups and roles, tuples "
            f"of texts: {error}; not {principal!r:.80}"
        ) from None


def check_choice(value: Any, known: Sequence[str], name: str) -> None:
    """Refuse a value that is neither None nor one of these words."""
    if value is not None and value not in known:
        raise UsageError(f"{name} is one of {', '.join(known)}, not {value!r:.80}")


def check_usage_keys(by: Any) -> tuple[UsageKey, ...]:
    """Check the keys that usage is summed by: a tuple or list of different words."""
    known = get_args(UsageKey)
    if isinstance(by, tuple | list):
        keys = tuple(cast(Sequence[Any], by))
        if all(isinstance(key, str) and key in known for key in keys) and len(set(keys)) == len(keys):
            return keys
    raise UsageError(f"by is a tuple of {', '.join(known)}, each once at most, not {by!r:.80}")


def check_table(value: Any, kind: str, name: str) -> None:
    """Refuse a value that is neither None nor a mapping."""
    if value is not None and not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} is a dict of names and a {kind}(...) for each, not {value!r:.80}")


def check_options(
    *, tools: Any, plugins: Any, keys: Any, models: Any, clock: Any, execute: Any, retention: Any, delivery: Any
) -> None:
    """Check a runtime's options; one error lists all problems."""
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
    if not isinstance(delivery, DeliveryPolicy):
        wrong.append(f"delivery is a DeliveryPolicy(...), not {delivery!r:.80}")
    if wrong:
        raise ConfigurationError(wrong)


def check_retention(retention: Any) -> None:
    """Refuse a retention with ages or counts that aren't whole numbers, or negative ones."""
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


def check_settings(settings: Any) -> None:
    """Refuse model settings that no vendor accepts or that JSON can't store."""
    check_instance(settings, ModelSettings, "settings")
    if settings is None:
        return
    if problems := settings_problems(settings):
        raise UsageError("; ".join(problems))
    try:
        msgspec.json.encode(settings)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"a run's settings are kept with it, so settings.extra must be JSON: {error}") from None


def duplicates_in(names: Sequence[str]) -> list[str]:
    """Problems of client tools that share a name."""
    return [f"two client tools are named {name!r}" for name in dict.fromkeys(names) if names.count(name) > 1]


def check_priority(priority: Any) -> int:
    """Check a priority; lower ones are claimed first."""
    if type(priority) is not int or not 0 <= priority <= 255:
        raise UsageError(f"a priority is 0 to 255, the lowest first, not {priority!r:.80}")
    return priority


def parse_time(delay: Any, at: Any, now: int) -> int | None:
    """The start time in milliseconds, from a delay in seconds or a datetime; None for at once."""
    if delay is not None and at is not None:
        raise UsageError("give a delay or a time, not both")
    if delay is not None:
        seconds = to_seconds(delay, "a delay")
        return min(now + round(seconds * 1000), LATEST) if seconds else None
    return None if at is None else to_milliseconds(at, "a time")


def check_backends(backends: Any) -> list[Any]:
    """Check the backend factories of a runtime."""
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


def check_transports(transports: Any) -> dict[str, Any]:
    """Check the transports of a runtime, which are keyed by the schemes of addresses."""
    if transports is None:
        return {}
    check_instance(transports, Mapping, "transports")
    found = dict(cast(Mapping[Any, Any], transports))
    for name, transport in found.items():
        if not isinstance(name, str) or not _SCHEME.match(name):
            raise ConfigurationError(f"a transport is named as addresses begin, such as 'https', not {name!r:.80}")
        if not callable(getattr(transport, "deliver", None)):
            raise ConfigurationError(f"transport {name!r}: {transport!r:.80} has no async deliver(message)")
    return found


def check_thread_id(thread: Any) -> str:
    """Check a thread id that a caller chose."""
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


def check_id(value: Any, what: str) -> str:
    """Check an id; the error for an object names its id attribute."""
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
    """Refuse values that are neither None nor ids; the keywords name their nouns."""
    for what, value in given.items():
        if value is not None:
            check_id(value, what)


def make_message(
    input: Any, principal: Principal | None, message_id: Any = None, message_digest: Any = None
) -> Message:
    """Make the user message of an input; `message_id` is its sender's own id, `message_digest` a hash of it."""
    producer = None
    if principal is not None or message_id is not None or message_digest is not None:
        check_ids(message=message_id, digest=message_digest)
        principal_id = None if principal is None else principal.id
        producer = Producer(principal_id=principal_id, message_id=message_id, digest=message_digest)
    return user_message(parse_input(input), producer=producer)


def check_history(given: Any) -> tuple[Message, ...]:
    """Check the messages that a thread begins with, and give them ids of their own."""
    if not isinstance(given, list | tuple) or not all(isinstance(one, Message) for one in cast(Any, given)):
        raise InvalidInput(f"history is a list of Message, oldest first, not {given!r:.80}")
    messages = cast(Sequence[Message], given)
    return tuple([Message(new_id(), m.role, m.content, m.created_at, None, m.visibility) for m in messages])


# An offset in the log, and optionally the attempt and the offset within the answer that is streamed after it.
_CURSOR = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18}\.[0-9]{1,18})?")


def parse_cursor(after: Any) -> tuple[int, tuple[int, int] | None]:
    """Parse a cursor: an offset in the log, and within the next answer its attempt and offset."""
    if not _CURSOR.fullmatch(str(after)):
        raise UsageError(
            "after is a cursor, such as event.cursor or 0 for the beginning: a number like 12, or within an "
            f"answer 12.1.340; not {after!r:.80}"
        )
    seq, *within = map(int, str(after).split("."))
    return seq, (within[0], within[1]) if within else None


def check_count(value: Any, name: str) -> int | None:
    """Check a positive number or None."""
    if value is not None and (not isinstance(value, int) or value < 1):
        raise UsageError(f"{name} is a positive number, not {value!r:.80}")
    return None if value is None else min(value, _LARGEST)


def check_request_id(request_id: Any) -> Request | None:
    """Check a request's id that a caller chose, or a `Request` with it."""
    if request_id is None:
        return None
    request = request_id if isinstance(request_id, Request) else Request(request_id)
    named: Any = request.id
    if not isinstance(named, str) or not 1 <= len(named) <= 200:
        raise UsageError(f"a request id is a text of 1 to 200 characters, not {named!r:.80}")
    check_id(named, "request")
    digest: Any = request.digest
    if not isinstance(digest, str) or len(digest) > 200:
        raise UsageError(f"the digest of a request is a text of up to 200 characters, not {digest!r:.80}")
    return replace(request, digest=clean_text(digest))


def check_decision(decision: Any) -> Decision:
    """Check a decision, except its value: only the ticket knows the type of that."""
    if not isinstance(decision, Decision) or not isinstance(cast(Any, decision.ticket_id), str):
        raise InvalidDecision(
            f"resume takes decisions, such as ticket.approve() or ticket.deny(), not {decision!r:.80}"
        )
    given: Any = decision
    if given.verdict not in get_args(Verdict):
        raise InvalidDecision(f"the verdict of a decision is approve or deny, not {given.verdict!r:.80}")
    if given.verdict not in ("approve", "deny"):
        raise InvalidDecision(f"a {given.verdict} answers nothing: use runtime.tickets.{given.verdict}(...)")
    for name in ("reason", "id", "principal_id", "seen", "auth"):
        value = getattr(given, name)
        if not isinstance(value, str) and not (name in ("principal_id", "seen") and value is None):
            raise InvalidDecision(f"the {name} of a decision is a text, not {value!r:.80}")
    check_ids(ticket=given.ticket_id, decision=given.id, principal=given.principal_id)
    # Lone surrogates are replaced, as in input.
    return replace(decision, reason=clean_text(decision.reason), not_taken=None, override=False)


def check_author(by: Any) -> Author | None:
    """The author of decisions, from a principal, which has the default rights, or an `Author`."""
    author = Author(by) if isinstance(by, Principal) else by
    if author is None:
        return None
    if not isinstance(author, Author):
        raise UsageError(f"principal must be a Principal or an Author, not {by!r:.80}")
    check_instance(author.principal, Principal, "principal")
    rights: Any = author.rights
    if not isinstance(rights, frozenset | set) or not RIGHTS.issuperset(cast(Any, rights)):
        raise UsageError(f"an author's rights are a frozenset of {', '.join(sorted(RIGHTS))}, not {rights!r:.80}")
    if not isinstance(cast(Any, author.auth), str):
        raise UsageError(f"an author's auth is a text, not {author.auth!r:.80}")
    _check_decider(author.principal.id)
    return author


def _check_decider(who: str | None) -> None:
    if who == SYSTEM:
        raise InvalidDecision(f"{SYSTEM!r} is who decides at a deadline; no principal may have that id")


def make_decisions(
    decisions: Sequence[Any], answers: Any, author: Author | None, request: Request | None
) -> list[Decision]:
    """Make decisions of decisions and answers."""
    if answers is not None and not isinstance(answers, Mapping):
        raise InvalidDecision(f"answers maps ticket or call ids to values, not {answers!r:.80}")
    items = cast(Mapping[str, Any], answers or {}).items()
    given = [*decisions, *[Decision(key, value=value) for key, value in items]]
    if not given:
        raise UsageError("resume needs a decision: ticket.approve(), ticket.deny(), ticket.answer(...)")
    given = [check_decision(decision) for decision in given]
    for decision in given:
        _check_decider(decision.principal_id)
    if author is not None:
        given = [replace(decision, principal_id=author.principal.id, auth=author.auth) for decision in given]
    if request is not None:
        given = [
            replace(decision, id=f"{request.id}:{place}", request_digest=request.digest)
            for place, decision in enumerate(given)
        ]
    return given
