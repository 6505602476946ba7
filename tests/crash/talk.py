"""The scenario: a conversation outgrows its model's window, and its process dies while it is summarised."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct

from wakeful import Agent, Compaction, Context, FunctionModel, ModelRequest, Runtime
from wakeful.models import Chunk
from wakeful.testing import CrashSite

from .shop import held

TURNS = 6
WORDS = "A good many words make a conversation long. " * 12


class Facts(Struct, frozen=True):
    context_window: int
    max_output: int


class Talker(FunctionModel):
    """Says which facts it can still read. A file holds its summaries up."""

    facts = Facts(1000, 250)

    def __init__(self, site: CrashSite) -> None:
        super().__init__(self._answer, name="talker")
        self._site = site

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        if "<conversation>" in request.messages[0].text:
            await held(self._site.folder, "summary")
        async for chunk in super().stream(request):
            yield chunk

    def _answer(self, request: ModelRequest) -> Any:
        text = " ".join(message.text for message in request.messages if message.role == "user")
        facts = sorted(set(re.findall(r"fact-\d+", text)))
        return " ".join(facts)


def talker(site: CrashSite) -> Runtime:
    context = Context(compaction=Compaction(keep=2))
    return Runtime([Agent("talker", model=Talker(site), context=context)], store=site.store)


async def talk(site: CrashSite) -> None:
    runtime = talker(site)
    for turn in range(TURNS):
        await runtime.run("talker", f"fact-{turn}. {WORDS}", thread="t", request_id=f"turn-{turn}")
    await runtime.close()
