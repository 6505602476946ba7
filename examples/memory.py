"""Notes about a user that another agent recalls in another conversation."""

import asyncio

from wakeful import Agent, Principal, Runtime, ScriptedModel, call
from wakeful.extensions.memory import Memory

noted = call("remember_user", key="diet", text="Vegan, and allergic to peanuts.")
host = Agent("host", model=ScriptedModel([noted, "I'll remember that."]), plugins=[Memory("user")])
cook = Agent(
    "cook", model=ScriptedModel(["Then no peanut sauce."]), plugins=[Memory("user", recall="auto", tools=False)]
)
runtime = Runtime([host, cook])


async def main() -> None:
    ann = Principal("ann")
    print((await runtime.run("host", "I'm vegan, and peanuts make me ill.", principal=ann)).text)
    print((await runtime.run("cook", "Anything wrong with peanut sauce?", principal=ann)).text)
    for note in await runtime.memories.list("user", "ann"):
        print(f"{note.key}: {note.text}")
    print("erased:", await runtime.memories.erase("user", "ann"))


if __name__ == "__main__":
    asyncio.run(main())
