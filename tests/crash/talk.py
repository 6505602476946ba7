"""Scenario: a conversation outgrows its model's window, and the process is killed during compaction."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from wakeful import Agent, Compaction, FunctionModel, ModelRequest, Runtime, WindowPolicy
from wakeful.models import Chunk, ModelFacts
from wakeful.testing import CrashSite

from .shop import held

TURNS = 6
WORDS = "A good many words make a conversation long. " * 12


class Talker(FunctionModel):
    """Answers with the facts that it can still read. A hold file blocks its summaries."""

    facts = ModelFacts(context_window=1000, max_output=250)

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
    window = WindowPolicy(compaction=Compaction(keep=2))
    return Runtime([Agent("talker", model=Talker(site), window=window)], store=site.store)


async def talk(site: CrashSite) -> None:
    runtime = talker(site)
    for turn in range(TURNS):
        await runtime.run("talker", f"fact-{turn}. {WORDS}", thread="t", request_id=f"turn-{turn}")
    await runtime.close()
