"""Tests made of runs: a run as a test for pytest that repeats it without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from keyword import iskeyword
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import UsageError
from ..runtime import TenantRuntime
from ..types.calls import Call
from ..types.content import Text, ToolReply, text_of
from ..types.messages import Message
from ..types.requests import ToolSpec
from ..types.runs import Cancelled, Failed, RunRecord
from ..types.tickets import Decision, ResumeMode

__all__ = ["slug", "write_test"]

MAX_BYTES = 1024 * 1024
# Begins the note to the model that a person gave a call other arguments.
_EDITED = "\n[a person changed the arguments"

_TEMPLATE = '''"""Repeat run {run} of agent {agent!r}: its answers, results and decisions are as recorded."""

from typing import Any

import pytest

from wakeful import Agent, Runtime, ScriptedModel, Turn, call
from wakeful.testing import Recorded, RecordedTool

INPUT: Any = {input!r}
ANSWERS = {answers}
TOOLS = {tools}
DECISIONS: list[Any] = {decisions}


@pytest.mark.wakeful
async def test_{slug}() -> None:
    model = ScriptedModel(ANSWERS)
    agent: Agent[Any] = Agent({agent!r}, model=model, tools=TOOLS{options})
    async with Runtime([agent]) as runtime:
        result = await runtime.run(agent, INPUT)
        for tool, arguments, decide in DECISIONS:
            ticket = next(t for t in result.tickets if t.tool == tool and t.arguments == arguments)
            result = await runtime.resume(result.run_id, decide(ticket))
    assert result.status == {status!r}
    assert result.{name} == {value!r}
    model.verify()
'''


async def write_test(runtime: TenantRuntime, run_id: str, *, instructions: bool = True) -> str:
    """Write a test that repeats a run with its model's answers, its tools' results and people's decisions.

    The tools, delegates among them, are `RecordedTool`s, so that nothing is executed. Without `instructions` the
    agent has none. Raises `UnknownRun`, and `UsageError` for a run that is at work, failed or was cancelled.
    """
    run = await runtime.runs.get(run_id)
    _check(run)
    calls = await runtime.runs.calls(run_id)
    result = await runtime.runs.result(run_id)
    messages = await runtime.threads.messages(run.thread_id, after=max(run.first_seq - 1, 0))
    own = [each for each in messages if each.producer is not None and each.producer.run_id == run_id]
    replies = {each.reply.call_id: each.reply for each in own if each.reply is not None}
    output = UNSET if run.outcome is None else run.outcome.output
    has_output = not isinstance(output, UnsetType)
    value = result.text if isinstance(output, UnsetType) else msgspec.json.decode(output)
    agent = runtime.agents.get(run.agent_id)
    options = ""
    if instructions and agent is not None and agent.instructions and isinstance(agent.instructions, str):
        options += f", instructions={agent.instructions!r}"
    if has_output:
        options += f", output={_type_of(value)}"
    specs = {} if agent is None else {spec.name: spec for spec in runtime.agents.tools(run.agent_id)}
    source = _TEMPLATE.format(
        run=run_id,
        agent=run.agent_id,
        slug=slug(run.agent_id),
        input=_input_of(messages),
        answers=_listed(_turn(each) for each in own if _is_answer(each)),
        tools=_listed(_tools(calls, replies, specs)),
        decisions=_listed(_decisions(calls)),
        options=options,
        status=result.status,
        name="output" if has_output else "text",
        value=value,
    )
    if len(source.encode()) > MAX_BYTES:
        raise UsageError(f"a test of run {run_id} would have more than {MAX_BYTES:,} bytes; choose a shorter run")
    return source


def slug(name: str) -> str:
    """A name as a part of an identifier."""
    return re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower() or "run"


def _check(run: RunRecord) -> None:
    ending = None if run.outcome is None else run.outcome.termination
    if isinstance(ending, Failed | Cancelled):
        raise UsageError(f"run {run.id} ended with {ending!r:.200}; choose one that answered, or waits")
    if run.status not in ("waiting", "done"):
        raise UsageError(f"run {run.id} is at work; wait until it is done, or asks")


def _input_of(messages: Sequence[Message]) -> Any:
    """The input of the run that begins with these messages, as text or as parts."""
    first = next((each for each in messages if each.role == "user"), None)
    if first is None:
        return "Go on."
    if all(isinstance(part, Text) for part in first.content):
        return text_of(first.content)
    return msgspec.to_builtins(first.content)


def _is_answer(message: Message) -> bool:
    return message.role == "assistant" and message.covers is None and message.rewrites is None


def _turn(message: Message) -> str:
    made = [_call(each.name, each.arguments) for each in message.calls]
    if not made:
        return repr(message.text)
    calls = f"[{', '.join(made)}]"
    return f"Turn(text={message.text!r}, calls={calls})" if message.text else calls


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    if all(key.isidentifier() and not iskeyword(key) for key in arguments):
        return f"call({', '.join([repr(name), *[f'{key}={value!r}' for key, value in arguments.items()]])})"
    return f"call({name!r}, **{dict(arguments)!r})"


def _tools(
    calls: Sequence[Call], replies: Mapping[str, ToolReply], specs: Mapping[str, ToolSpec]
) -> Iterator[str]:
    for name in dict.fromkeys(each.name for each in calls if not each.is_guardrail):
        recorded = [text for each in calls if each.name == name for text in _recorded(each, replies.get(each.id))]
        options = ""
        if (spec := specs.get(name)) is not None:
            options = f", description={spec.description!r}, parameters={spec.parameters!r}"
        yield f"RecordedTool({name!r}, [{', '.join(recorded)}]{options})"


def _recorded(call: Call, reply: ToolReply | None) -> Iterator[str]:
    """The entries of a call: one that asks, if a person was asked, and one with the result."""
    asks = ", asks=True" if _was_asked(call) else ""
    if reply is None or _is_settled(call):
        yield f"Recorded({call.arguments!r}{asks})"
        return
    if call.edited is not None:
        yield f"Recorded({call.arguments!r}{asks})"
        asks = ""
    text = text_of(tuple(part for part in reply.content if isinstance(part, Text)))
    if call.edited is not None:
        text = text.partition(_EDITED)[0]  # The loop adds the note again.
    result = f", error={text!r}" if reply.error is not None else f", {text!r}"
    yield f"Recorded({call.effective_arguments!r}{result}{asks})"


def _was_asked(call: Call) -> bool:
    """Whether the call waited for a person before it ran."""
    return _decision(call) is not None or (call.state == "suspended" and call.ticket_id is not None)


def _decision(call: Call) -> Decision | None:
    """The decision that ended the wait of a call."""
    made = [each for each in call.decisions if each.verdict in ("approve", "deny") and each.not_taken is None]
    return made[-1] if made else None


def _is_settled(call: Call) -> bool:
    """Whether a person denied the call or gave its result, so that its tool didn't run."""
    made = _decision(call)
    return made is not None and (made.verdict == "deny" or _mode(made) == "result")


def _mode(decision: Decision) -> ResumeMode:
    return decision.mode or ("result" if decision.asked_by == "client" else "proceed")


def _decisions(calls: Sequence[Call]) -> Iterator[str]:
    for call in calls:
        made = _decision(call)
        if made is None:
            continue
        if made.verdict == "deny":
            text = f"deny({made.reason!r})"
        elif _mode(made) == "arguments":
            text = f"edit({made.value!r})"
        elif _mode(made) == "result":
            text = f"result({made.value!r})"
        else:
            text = f"approve({'' if made.value is None else repr(made.value)})"
        yield f"({call.name!r}, {call.arguments!r}, lambda ticket: ticket.{text})"


def _type_of(value: Any) -> str:
    match value:
        case dict():
            return "dict[str, Any]"
        case list():
            return "list[Any]"
        case _:
            return type(value).__name__


def _listed(entries: Iterator[str]) -> str:
    lines = [f"    {entry},\n" for entry in entries]
    return f"[\n{''.join(lines)}]" if lines else "[]"
