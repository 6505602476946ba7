"""LangGraph with a checkpointer: the prebuilt agent, each step saved in the default mode."""

from itertools import count
from typing import Any

from benchmarks.contenders.langgraph import agent_of
from benchmarks.measures import PROMPT, Durable, Plan, Tally, Turn


def runs(saver: Any, plan: Plan, tally: Tally) -> Durable:
    agent, numbers = agent_of(plan, tally, checkpointer=saver), count()

    async def once() -> str:
        own = {"thread_id": f"thread-{next(numbers)}"}
        config: Any = {"configurable": own, "recursion_limit": 2 * plan.turns + 10}
        state = await agent.ainvoke({"messages": [{"role": "user", "content": PROMPT}]}, config)
        return state["messages"][-1].content

    return Durable(once)


def turns(saver: Any, plan: Plan, tally: Tally) -> Turn:
    agent = agent_of(plan, tally, checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "conversation"}}

    async def turn(prompt: str) -> str:
        state = await agent.ainvoke({"messages": [{"role": "user", "content": prompt}]}, config)
        return state["messages"][-1].content

    return turn
