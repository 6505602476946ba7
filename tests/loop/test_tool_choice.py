"""A tool choice that forces a call, and the timeout of one answer."""

from __future__ import annotations

from typing import Any

import pytest

from wakeful import Agent, ModelSettings, Runtime, tool
from wakeful.models import FunctionModel, ModelRequest, call


@tool
def look() -> str:
    """Look."""
    return "blue"


@pytest.mark.parametrize("choice", ["required", "look"])
async def test_forced_tool_choice_holds_for_the_first_step(choice: str) -> None:
    asked: list[str | None] = []

    def answer(request: ModelRequest) -> Any:
        asked.append(request.settings.tool_choice)
        return call("look") if len(asked) == 1 else "Blue."

    agent = Agent("a", model=FunctionModel(answer), tools=[look], settings=ModelSettings(tool_choice=choice))
    async with Runtime([agent]) as runtime:
        assert (await runtime.run("a", "Look!")).text == "Blue."
    assert asked == [choice, None]
