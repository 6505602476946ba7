"""Floor: the loop one would write by hand with asyncio, dicts and json."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from benchmarks.measures import CHILD, INSTRUCTIONS, PROMPT, Plan, Run, Tally

PACKAGES = ()
IMPORT = "import asyncio, json"


def run(plan: Plan, tally: Tally) -> Run:
    async def step(n: int) -> str:
        tally.tools += 1
        return str(n)

    loop = _loop(plan, tally, step)
    return lambda: loop(PROMPT)


def delegation(plan: Plan, tally: Tally) -> Run:
    child = _loop(CHILD, tally, None)

    async def researcher(task: str) -> str:
        return await child(task)

    loop = _loop(plan, tally, researcher)
    return lambda: loop(PROMPT)


def _loop(plan: Plan, tally: Tally, tool: Any) -> Any:
    async def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
        tally.models += 1
        if plan.latency:
            await asyncio.sleep(plan.latency)
        last = messages[-1]
        calls = plan.ask(last["content"] if last["role"] == "tool" else None)
        if not calls:
            return {"role": "assistant", "content": plan.text}
        asked = [{"id": call.id, "name": plan.tool, "arguments": call.json} for call in calls]
        return {"role": "assistant", "content": None, "tool_calls": asked}

    tools = {plan.tool: tool}

    async def use(call: dict[str, Any]) -> dict[str, Any]:
        content = await tools[call["name"]](**json.loads(call["arguments"]))
        return {"role": "tool", "tool_call_id": call["id"], "content": content}

    async def once(prompt: str) -> str:
        messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": prompt}]
        encoded = [json.dumps(message) for message in messages]
        while True:
            answer = await model(messages)
            messages.append(answer)
            encoded.append(json.dumps(answer))
            calls = answer.get("tool_calls")
            if not calls:
                return answer["content"]
            results = [await use(calls[0])] if len(calls) == 1 else await asyncio.gather(*map(use, calls))
            messages += results
            encoded += map(json.dumps, results)

    return once


def stream(plan: Plan, tally: Tally) -> Run:
    async def model(messages: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        tally.models += 1
        for part in plan.parts:
            yield {"type": "text", "text": part}

    async def events() -> AsyncIterator[dict[str, Any]]:
        messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": PROMPT}]
        parts = []
        async for delta in model(messages):
            parts.append(delta["text"])
            yield delta
        json.dumps({"role": "assistant", "content": "".join(parts)})

    async def once() -> list[str]:
        return [event["text"] async for event in events()]

    return once
