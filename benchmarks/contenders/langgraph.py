"""LangGraph: the prebuilt agent over a scripted chat model, and for streams also a raw graph."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypedDict

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph

from benchmarks.measures import CHILD, INSTRUCTIONS, PROMPT, Plan, Run, Tally

PACKAGES = ("langgraph", "langchain", "langchain-core")
IMPORT = "from langchain.agents import create_agent\nfrom langchain.tools import tool"


class Scripted(BaseChatModel):
    plan: Any
    tally: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> "Scripted":
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.tally.models += 1
        if self.plan.latency:
            await asyncio.sleep(self.plan.latency)
        last = messages[-1]
        calls = self.plan.ask(last.content if isinstance(last, ToolMessage) else None)
        if calls:
            asked = [{"name": self.plan.tool, "args": call.arguments, "id": call.id} for call in calls]
            message = AIMessage(content="", tool_calls=asked)
        else:
            message = AIMessage(content=self.plan.text)
        return ChatResult(generations=[ChatGeneration(message=message)])


class ScriptedStream(Scripted):
    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        self.tally.models += 1
        for part in self.plan.parts:
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=part))
            if run_manager:
                await run_manager.on_llm_new_token(part, chunk=chunk)
            yield chunk


def agent_of(plan: Plan, tally: Tally, **options: Any) -> Any:
    @tool
    async def step(n: int) -> str:
        """Do one step."""
        tally.tools += 1
        return str(n)

    tools = [step] if plan.turns else []
    return create_agent(Scripted(plan=plan, tally=tally), tools, system_prompt=INSTRUCTIONS, **options)


def run(plan: Plan, tally: Tally) -> Run:
    agent = agent_of(plan, tally)
    # Two graph steps a turn; the default stops long before 100 turns.
    config: Any = {"recursion_limit": 2 * plan.turns + 10}

    async def once() -> str:
        state = await agent.ainvoke({"messages": [{"role": "user", "content": PROMPT}]}, config)
        return state["messages"][-1].content

    return once


def delegation(plan: Plan, tally: Tally) -> Run:
    child = agent_of(CHILD, tally)

    @tool(plan.tool)
    async def researcher(task: str) -> str:
        """Do research."""
        state = await child.ainvoke({"messages": [{"role": "user", "content": task}]})
        return state["messages"][-1].content

    agent = create_agent(Scripted(plan=plan, tally=tally), [researcher], system_prompt=INSTRUCTIONS)

    async def once() -> str:
        state = await agent.ainvoke({"messages": [{"role": "user", "content": PROMPT}]})
        return state["messages"][-1].content

    return once


class State(TypedDict):
    prompt: str
    answer: str


def _agent_stream(plan: Plan, tally: Tally) -> Run:
    agent = create_agent(ScriptedStream(plan=plan, tally=tally), [], system_prompt=INSTRUCTIONS)

    async def once() -> list[str]:
        question: Any = {"messages": [{"role": "user", "content": PROMPT}]}
        parts = []
        async for chunk, _ in agent.astream(question, stream_mode="messages"):
            if chunk.content:
                parts.append(chunk.content)
        return parts

    return once


def _raw_stream(plan: Plan, tally: Tally) -> Run:
    async def answer(state: State) -> dict[str, str]:
        tally.models += 1
        write = get_stream_writer()
        for part in plan.parts:
            write(part)
        return {"answer": plan.text}

    graph = StateGraph(State)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    compiled = graph.compile()

    async def once() -> list[str]:
        question: Any = {"prompt": PROMPT, "answer": ""}
        return [part async for part in compiled.astream(question, stream_mode="custom")]

    return once


def stream(plan: Plan, tally: Tally) -> dict[str, Run]:
    return {"prebuilt agent": _agent_stream(plan, tally), "raw graph": _raw_stream(plan, tally)}
