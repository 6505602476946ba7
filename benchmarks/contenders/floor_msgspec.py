"""Floor: the loop one would write by hand with asyncio and msgspec structs, every message encoded."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from benchmarks.long_threads import SHOWN, TEXT, LongThread
from benchmarks.measures import CHILD, INSTRUCTIONS, PROMPT, Plan, Run, Tally

PACKAGES = ("msgspec",)
IMPORT = "import asyncio, msgspec"


class ToolCall(msgspec.Struct, omit_defaults=True):
    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, omit_defaults=True):
    role: str
    content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class Delta(msgspec.Struct):
    text: str


class Arguments(msgspec.Struct):
    n: int


class Task(msgspec.Struct):
    task: str


def run(plan: Plan, tally: Tally) -> Run:
    async def step(arguments: Arguments) -> str:
        tally.tools += 1
        return str(arguments.n)

    loop = _loop(plan, tally, Arguments, step)
    return lambda: loop(PROMPT)


def delegation(plan: Plan, tally: Tally) -> Run:
    child = _loop(CHILD, tally, Arguments, None)

    async def researcher(arguments: Task) -> str:
        return await child(arguments.task)

    loop = _loop(plan, tally, Task, researcher)
    return lambda: loop(PROMPT)


def _loop(plan: Plan, tally: Tally, arguments: type, tool: Any) -> Any:
    encode = msgspec.json.Encoder().encode
    decode = msgspec.json.Decoder(arguments).decode

    async def model(messages: list[Message]) -> Message:
        tally.models += 1
        if plan.latency:
            await asyncio.sleep(plan.latency)
        last = messages[-1]
        calls = plan.ask(last.content if last.role == "tool" else None)
        if not calls:
            return Message("assistant", plan.text)
        return Message("assistant", None, [ToolCall(call.id, plan.tool, call.json) for call in calls])

    tools = {plan.tool: tool}

    async def use(call: ToolCall) -> Message:
        content = await tools[call.name](decode(call.arguments))
        return Message("tool", content, None, call.id)

    async def once(prompt: str) -> str:
        messages = [Message("system", INSTRUCTIONS), Message("user", prompt)]
        encoded = [encode(message) for message in messages]
        while True:
            answer = await model(messages)
            messages.append(answer)
            encoded.append(encode(answer))
            calls = answer.tool_calls
            if not calls:
                return answer.content or ""
            results = [await use(calls[0])] if len(calls) == 1 else await asyncio.gather(*map(use, calls))
            messages += results
            encoded += map(encode, results)

    return once


@asynccontextmanager
async def long_thread(plan: Plan, tally: Tally, address: None, messages: int) -> AsyncIterator[LongThread]:
    """A list of messages, of which each turn shows the newest to the model."""
    encode, shown = msgspec.json.Encoder().encode, 0
    thread = [Message("assistant" if number % 2 else "user", TEXT) for number in range(messages)]
    encoded: list[bytes] = []

    async def model(window: list[Message]) -> Message:
        nonlocal shown
        tally.models += 1
        shown = sum([len(message.content or "") for message in window])
        return Message("assistant", plan.text)

    async def turn(prompt: str) -> str:
        thread.append(Message("user", prompt))
        answer = await model([Message("system", INSTRUCTIONS), *thread[-SHOWN:]])
        thread.append(answer)
        encoded.extend([encode(thread[-2]), encode(answer)])
        return answer.content or ""

    yield LongThread(turn, lambda: shown)


def stream(plan: Plan, tally: Tally) -> Run:
    encode = msgspec.json.Encoder().encode

    async def model(messages: list[Message]) -> AsyncIterator[Delta]:
        tally.models += 1
        for part in plan.parts:
            yield Delta(part)

    async def events() -> AsyncIterator[Delta]:
        messages = [Message("system", INSTRUCTIONS), Message("user", PROMPT)]
        parts = []
        async for delta in model(messages):
            parts.append(delta.text)
            yield delta
        encode(Message("assistant", "".join(parts)))

    async def once() -> list[str]:
        return [event.text async for event in events()]

    return once
