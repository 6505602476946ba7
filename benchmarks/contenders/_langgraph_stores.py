"""LangGraph with a checkpointer: the prebuilt agent, each step saved in the mode that is its default."""

from itertools import count
from typing import Any

from benchmarks._measures import PROMPT, Durable, Plan, Tally, Turn
from benchmarks.contenders.langgraph import agent_of


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
