"""A plugin that keeps count of an agent's tool calls in the thread's state, and refuses one too many."""

from random import randint

from wakeful import AfterTool, Agent, GateAnswer, GateTool, Plugin, Runtime, ScriptedModel, StateKey, call, tool


class Calls(StateKey[int, int]):
    """How many tool calls the thread has had; updates add up."""

    name, scope, merge, default = "calls", "thread", "commutative", 0

    def apply(self, value: int, update: int) -> int:
        return value + update


class Quota(Plugin):
    """Two tool calls for each thread; a refused one gives the model an error result and the run goes on."""

    keys = (Calls,)

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        return ctx.block("this thread has used its two calls") if ctx.state[Calls] >= 2 else None

    async def after_tool(self, ctx: AfterTool) -> None:
        ctx.update(Calls, 1 if ctx.outcome == "ok" else 0)


@tool
async def roll() -> int:
    """Roll a die."""
    return randint(1, 6)


model = ScriptedModel([call("roll"), call("roll"), call("roll"), "Two rolls were all I had."])
runtime = Runtime([Agent("player", model=model, tools=[roll], plugins=[Quota()])])

if __name__ == "__main__":
    print(runtime.run_sync("player", "Roll three times.").text)
