"""Media that a model is known not to take is refused before anybody is asked."""

from __future__ import annotations

from typing import Any, cast

import pytest

from wakeful import (
    Agent,
    Audio,
    Base64,
    Document,
    Image,
    ModelFacts,
    Runtime,
    ScriptedModel,
    Text,
    Url,
    Video,
    call,
    tool,
)
from wakeful.types.runs import Failed

MEDIA: dict[str, Any] = {
    "image": Image(Url("https://example.com/a.png")),
    "audio": Audio(Base64("audio/wav", "AAAA")),
    "video": Video(Url("https://example.com/a.mp4")),
    "document": Document(Base64("application/pdf", "AAAA")),
}


class Knowing(ScriptedModel):
    """A scripted model of which something is known."""

    def __init__(self, turns: Any, *kinds: str) -> None:
        super().__init__(turns, name="acme:plain")
        self.facts = ModelFacts(input_modalities=cast(Any, kinds))


@pytest.mark.parametrize("kind", MEDIA)
async def test_a_kind_that_it_does_not_take_is_named_and_nobody_asked(kind: str) -> None:
    model = Knowing(["never"], "text")
    result = await Runtime([Agent("agent", model=model)]).run("agent", [Text("look"), MEDIA[kind]])
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "InvalidRequest"
    assert f"'acme:plain' takes no {kind} (it takes: text)" in result.termination.message
    assert model.requests == []


@pytest.mark.parametrize("kind", MEDIA)
async def test_a_kind_that_it_takes_goes(kind: str) -> None:
    model = Knowing(["seen"], kind)
    assert (await Runtime([Agent("agent", model=model)]).run("agent", [MEDIA[kind]])).text == "seen"


async def test_what_a_tool_returns_is_looked_at_too() -> None:
    @tool
    async def photo() -> Any:
        """Take one."""
        return MEDIA["image"]

    model = Knowing([call("photo"), "never"], "text")
    result = await Runtime([Agent("agent", model=model, tools=[photo])]).run("agent", "go")
    assert isinstance(result.termination, Failed)
    assert "takes no image" in result.termination.message
    assert len(model.requests) == 1


async def test_text_needs_no_modality_and_without_facts_all_goes() -> None:
    # Edge case 46.
    assert (await Runtime([Agent("agent", model=Knowing(["hi"]))]).run("agent", "go")).text == "hi"
    model = ScriptedModel(["seen"])
    assert (await Runtime([Agent("agent", model=model)]).run("agent", [*MEDIA.values()])).text == "seen"
