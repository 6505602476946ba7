from wakeful import Agent, Runtime, call, tool
from wakeful.types.runs import NaturalEnd


@tool
async def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"Sunny in {city}"


async def test_tool_call_and_answer(scripted) -> None:
    model = scripted(call("weather", city="Paris"), "It is sunny.")
    async with Runtime([Agent("assistant", model=model, tools=[weather])]) as runtime:
        result = await runtime.run("assistant", "Weather in Paris?")
    assert result.text == "It is sunny."
    assert result.termination == NaturalEnd()
