"""A plugin that counts tool calls in the thread's state and refuses the third."""

from wakeful import Agent, Plugin, Runtime, ScriptedModel, StateKey, call, tool
from wakeful.plugins import AfterTool, GateAnswer, GateTool


class Calls(StateKey[int, int]):
    """The number of tool calls on the thread; updates add up."""

    name, scope, merge, default = "calls", "thread", "commutative", 0

    def apply(self, value: int, update: int) -> int:
        return value + update


class Quota(Plugin):
    """Allows two tool calls for each thread; a refused call is an error result, and the run continues."""

    keys = (Calls,)

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        return ctx.block("this thread has used its two calls") if ctx.state[Calls] >= 2 else None

    async def after_tool(self, ctx: AfterTool) -> None:
        ctx.update(Calls, 1 if ctx.outcome == "ok" else 0)


@tool
async def roll() -> int:
    """Roll a die."""
    return 4


model = ScriptedModel([call("roll"), call("roll"), call("roll"), "Two rolls were all I had."])
runtime = Runtime([Agent("player", model=model, tools=[roll], plugins=[Quota()])])

if __name__ == "__main__":
    print(runtime.run_sync("player", "Roll three times.").text)
