"""Media that a model doesn't accept is refused before the call."""

from __future__ import annotations

from typing import Any, cast

import pytest

from wakeful import Agent, Document, Image, Pool, Runtime, ScriptedModel, Text, call, tool
from wakeful.errors import BadCredentials
from wakeful.models import Member, ModelFacts
from wakeful.types import Audio, Base64, Url, Video
from wakeful.types.runs import Failed

MEDIA: dict[str, Any] = {
    "image": Image(Url("https://example.com/a.png")),
    "audio": Audio(Base64("audio/wav", "AAAA")),
    "video": Video(Url("https://example.com/a.mp4")),
    "document": Document(Base64("application/pdf", "AAAA")),
}


class Knowing(ScriptedModel):
    """A scripted model with facts."""

    def __init__(self, turns: Any, *kinds: str) -> None:
        super().__init__(turns, name="acme:plain")
        self.facts = ModelFacts(input_modalities=cast(Any, kinds))


@pytest.mark.parametrize("kind", MEDIA)
async def test_unaccepted_media_is_refused_before_the_call(kind: str) -> None:
    model = Knowing(["never"], "text")
    result = await Runtime([Agent("agent", model=model)]).run("agent", [Text("look"), MEDIA[kind]], check=False)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "InvalidRequest"
    assert f"'acme:plain' takes no {kind} (it takes: text)" in result.termination.message
    assert model.requests == []


@pytest.mark.parametrize("kind", MEDIA)
async def test_accepted_media_is_sent(kind: str) -> None:
    model = Knowing(["seen"], kind)
    assert (await Runtime([Agent("agent", model=model)]).run("agent", [MEDIA[kind]])).text == "seen"


async def test_media_in_results_is_checked() -> None:
    @tool
    async def photo() -> Any:
        """Take one."""
        return MEDIA["image"]

    model = Knowing([call("photo"), "never"], "text")
    result = await Runtime([Agent("agent", model=model, tools=[photo])]).run("agent", "go", check=False)
    assert isinstance(result.termination, Failed)
    assert "takes no image" in result.termination.message
    assert len(model.requests) == 1


@pytest.mark.parametrize("kind", MEDIA)
async def test_media_of_earlier_turns_becomes_a_placeholder(kind: str) -> None:
    @tool
    async def photo() -> Any:
        """Take one."""
        return MEDIA[kind]

    seeing, blind = ScriptedModel([call("photo"), "A cat."], name="seeing"), Knowing(["It is late."], "text")
    agents = [Agent("first", model=seeing, tools=[photo]), Agent("second", model=blind)]
    runtime = Runtime(agents)
    await runtime.run("first", [Text("look"), MEDIA[kind]], thread="t")
    assert (await runtime.run("second", "What time is it?", thread="t")).text == "It is late."
    (request,) = blind.requests
    told = str([message.content for message in request.messages])
    article = "an" if kind in ("image", "audio") else "a"
    assert told.count(f"[{article} {kind} was here]") == 2
    assert MEDIA[kind] in (await runtime.threads.messages("t"))[0].content, "the thread keeps what it has"


async def test_pool_skips_members_that_refuse_the_media() -> None:
    blind, seeing = Knowing(["never"], "text"), Knowing(["A cat.", "Hi."], "image")
    blind.name, seeing.name = "acme:blind", "acme:seeing"
    pool = Pool([blind, Member(seeing, role="failover")])
    runtime = Runtime([Agent("agent", model=pool)])
    assert (await runtime.run("agent", [MEDIA["image"]], thread="t")).text == "A cat."
    assert (await runtime.run("agent", "And now?", thread="t")).text == "never"
    assert "[an image was here]" in str(blind.requests[0].messages)


async def test_pool_refuses_media_that_no_member_accepts() -> None:
    pool = Pool([Knowing(["never"], "text"), Member(ScriptedModel([]), role="failover")])
    facts = {"scripted": ModelFacts(input_modalities=("text", "audio"))}
    result = await Runtime([Agent("agent", model=pool)], facts=facts).run("agent", [MEDIA["image"]], check=False)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "InvalidRequest"
    assert "none of its members takes image" in result.termination.message


async def test_pool_reports_that_the_only_fitting_member_is_down() -> None:
    pool = Pool([Knowing(["never"], "text"), Member(ScriptedModel([BadCredentials("no key")]), role="failover")])
    result = await Runtime([Agent("agent", model=pool)]).run("agent", [MEDIA["image"]], check=False)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "PoolExhausted"
    assert "acme:plain: takes no image" in result.termination.message


async def test_media_is_unchecked_without_facts() -> None:
    # Edge case 46.
    assert (await Runtime([Agent("agent", model=Knowing(["hi"]))]).run("agent", "go")).text == "hi"
    model = ScriptedModel(["seen"])
    assert (await Runtime([Agent("agent", model=model)]).run("agent", [*MEDIA.values()])).text == "seen"
