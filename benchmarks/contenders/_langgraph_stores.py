"""LangGraph with a checkpointer: the prebuilt agent and a hand-written graph, saved in the default mode."""

from itertools import count
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from benchmarks.contenders.langgraph import Scripted, agent_of
from benchmarks.measures import PROMPT, Durable, Plan, Tally, Turn


def graph_of(plan: Plan, tally: Tally, saver: Any) -> Any:
    """The loop as a graph of two nodes, without the prebuilt agent."""
    model = Scripted(plan=plan, tally=tally)

    async def answer(state: MessagesState) -> dict[str, list[AIMessage]]:
        result = await model._agenerate(state["messages"])
        return {"messages": [result.generations[0].message]}

    async def step(state: MessagesState) -> dict[str, list[ToolMessage]]:
        calls = state["messages"][-1].tool_calls
        tally.tools += len(calls)
        return {"messages": [ToolMessage(str(call["args"]["n"]), tool_call_id=call["id"]) for call in calls]}

    def route(state: MessagesState) -> str:
        return "step" if state["messages"][-1].tool_calls else END

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_node("step", step)
    graph.add_edge(START, "answer")
    graph.add_conditional_edges("answer", route, ["step", END])
    graph.add_edge("step", "answer")
    return graph.compile(checkpointer=saver)


def runs(saver: Any, plan: Plan, tally: Tally) -> dict[str, Durable]:
    numbers = count()
    agents = {
        "prebuilt agent": agent_of(plan, tally, checkpointer=saver),
        "raw graph": graph_of(plan, tally, saver),
    }
    return {name: _runs(agent, plan, numbers) for name, agent in agents.items()}


def _runs(agent: Any, plan: Plan, numbers: Any) -> Durable:
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
