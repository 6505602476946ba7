"""The floors' loop on a database, as one would write it by hand: one transaction for each turn.

Its messages have the fields of wakeful's, so that as many bytes are written.
"""

import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

import msgspec

from benchmarks.long_threads import SHOWN, TEXT, LongThread
from benchmarks.measures import PROMPT, Plan, Run, Tally, Turn

HISTORY = 20

# Saves a turn in one transaction: run number, number of its first message, messages, run record.
Save = Callable[[int, int, list[bytes], bytes], Awaitable[None]]
# The payloads of a run's newest messages, oldest first.
Load = Callable[[int, int], Awaitable[list[bytes]]]


class Part(msgspec.Struct, omit_defaults=True):
    type: str
    text: str | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: dict[str, int] | None = None
    content: list["Part"] | None = None
    vendor_id: str | None = None


class Producer(msgspec.Struct):
    run_id: str
    step: int
    agent_id: str


class Message(msgspec.Struct, omit_defaults=True):
    id: str
    role: str
    content: list[Part]
    created_at: int
    producer: Producer | None = None


class Identity(msgspec.Struct):
    run_id: str
    thread_id: str
    agent_id: str
    root_run_id: str


class RunRow(msgspec.Struct):
    identity: Identity
    status: str
    agent_id: str
    steps: int
    answer_id: str | None
    tree_calls: int
    created_at: int
    started_at: int
    updated_at: int


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Message).decode


def new_id() -> str:
    return str(uuid4())


def now() -> int:
    return time.time_ns() // 1_000_000


def new_run() -> RunRow:
    run_id, at = new_id(), now()
    return RunRow(Identity(run_id, run_id, "bench", run_id), "running", "bench", 0, None, 0, at, at, at)


def runs(plan: Plan, tally: Tally, save: Save) -> Run:
    """Run the plan; the prompt is part of the first turn's transaction."""
    number = 0

    async def model(messages: list[Message]) -> list[Part]:
        tally.models += 1
        last = messages[-1].content[0]
        calls = plan.ask(last.content[0].text if last.content else None)
        if not calls:
            return [Part("text", plan.text)]
        return [
            Part("tool_call", id=new_id(), name="step", arguments=call.arguments, vendor_id=call.id)
            for call in calls
        ]

    async def step(n: int) -> str:
        tally.tools += 1
        return str(n)

    async def once() -> str:
        nonlocal number
        number += 1
        own, run, saved = number, new_run(), 0
        messages = [Message(new_id(), "user", [Part("text", PROMPT)], now())]
        while True:
            run.steps += 1
            by = Producer(run.identity.run_id, run.steps, "bench")
            answer = Message(new_id(), "assistant", await model(messages), now(), by)
            messages.append(answer)
            run.answer_id = answer.id
            done = answer.content[0].type == "text"
            if not done:
                for call in answer.content:
                    result = Part("text", await step(**call.arguments or {}))
                    reply = Part("tool_reply", call_id=call.id, name=call.name, content=[result])
                    messages.append(Message(new_id(), "tool", [reply], now(), by))
                    run.tree_calls += 1
            else:
                run.status = "done"
            run.updated_at = now()
            await save(own, saved, [encode(message) for message in messages[saved:]], encode(run))
            saved = len(messages)
            if done:
                return answer.content[0].text or ""

    return once


def turns(plan: Plan, tally: Tally, save: Save, load: Load) -> Turn:
    """Turns of one conversation, each a run in one transaction; the model gets the last messages."""
    run, count = new_run(), 0

    async def turn(prompt: str) -> str:
        nonlocal count
        shown = [decode(payload) for payload in await load(1, HISTORY)]
        message = Message(new_id(), "user", [Part("text", prompt)], now())
        shown.append(message)
        tally.models += 1
        run.steps += 1
        by = Producer(run.identity.run_id, run.steps, "bench")
        answer = Message(new_id(), "assistant", [Part("text", plan.text)], now(), by)
        await save(1, count, [encode(message), encode(answer)], encode(run))
        count += 2
        return answer.content[0].text or ""

    return turn


async def long_thread(plan: Plan, tally: Tally, save: Save, load: Load, messages: int) -> LongThread:
    """Turns at the end of a long conversation, each in one transaction; the model gets the newest messages."""
    run, count, shown = new_run(), 0, 0
    for start in range(0, messages, 1000):
        roles = ["assistant" if number % 2 else "user" for number in range(start, start + 1000)]
        page = [encode(Message(new_id(), role, [Part("text", TEXT)], now())) for role in roles]
        await save(messages, start, page, encode(run))
        count += len(page)

    async def turn(prompt: str) -> str:
        nonlocal count, shown
        window = [decode(payload) for payload in await load(messages, SHOWN)]
        message = Message(new_id(), "user", [Part("text", prompt)], now())
        window.append(message)
        tally.models += 1
        shown = sum([len(part.text or "") for message in window for part in message.content])
        by = Producer(run.identity.run_id, run.steps, "bench")
        answer = Message(new_id(), "assistant", [Part("text", plan.text)], now(), by)
        await save(messages, count, [encode(message), encode(answer)], encode(run))
        count += 2
        return answer.content[0].text or ""

    return LongThread(turn, lambda: shown)
