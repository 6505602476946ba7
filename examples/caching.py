"""The cached share of a conversation of ten turns; `python -m examples.caching VENDOR:MODEL` asks a real model."""

from __future__ import annotations

import asyncio
import sys

from wakeful import Agent, FunctionModel, ModelRequest, Runtime
from wakeful.models import Turn
from wakeful.types import Usage

MANUAL = " ".join(f"Rule {n}: answer question {n} in one short sentence." for n in range(400))
cached = 0


def answer(request: ModelRequest) -> Turn:
    """Stand in for a model that caches each request; a token is a word."""
    global cached
    size = len(" ".join([request.system, *[message.text for message in request.messages]]).split())
    usage, cached = Usage(size, 3, cached, size - cached), size
    return Turn(text="As the rules say.", usage=usage)


async def main(model: str | FunctionModel) -> None:
    total = Usage()
    async with Runtime([Agent("clerk", model=model, instructions=MANUAL)]) as runtime:
        for turn in range(1, 11):
            usage = (await runtime.run("clerk", f"What does rule {turn} say?", thread="t")).usage
            print(f"turn {turn:2}: {usage.input_tokens:,} tokens of input, {share(usage):.0%} from the cache")
            total += usage
    print(f"in all: {share(total):.0%} from the cache")


def share(usage: Usage) -> float:
    return usage.cached_tokens / max(1, usage.input_tokens)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else FunctionModel(answer)))
