"""Google ADK: an LlmAgent in a Runner with in-memory sessions, over a scripted BaseLlm."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.telemetry import TelemetryConfig
from google.adk.telemetry.context import ContentCapturingMode
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from benchmarks.measures import CHILD, INSTRUCTIONS, PROMPT, Plan, Run, Tally

PACKAGES = ("google-adk", "google-genai")
IMPORT = (
    "from google.adk.agents import LlmAgent\n"
    "from google.adk.runners import Runner\n"
    "from google.adk.sessions import InMemorySessionService"
)


# Every provider sends one, and ADK logs a line for each answer without it.
USAGE = types.GenerateContentResponseUsageMetadata(prompt_token_count=1, candidates_token_count=1)

# ADK can't switch tracing off; this is the cheapest form, decided once instead of for each event.
QUIET = TelemetryConfig(
    genai_semconv_stability_opt_in="stable", capture_message_content=ContentCapturingMode.NO_CONTENT
)


def _answer(parts: list[types.Part], partial: bool | None = None) -> LlmResponse:
    content = types.Content(role="model", parts=parts)
    return LlmResponse(content=content, partial=partial, usage_metadata=USAGE)


class Scripted(BaseLlm):
    plan: Any
    tally: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        plan = self.plan
        self.tally.models += 1
        if plan.latency:
            await asyncio.sleep(plan.latency)
        if stream:
            for text in plan.parts:
                yield _answer([types.Part(text=text)], partial=True)
        last = llm_request.contents[-1].parts[-1].function_response
        parts = [
            types.Part(function_call=types.FunctionCall(id=call.id, name=plan.tool, args=call.arguments))
            for call in plan.ask(last.response["result"] if last else None)
        ]
        yield _answer(parts or [types.Part(text=plan.text)])


def runner_of(plan: Plan, tally: Tally, sessions: Any) -> Runner:
    async def step(n: int) -> str:
        """Do one step."""
        tally.tools += 1
        return str(n)

    agent = LlmAgent(
        name="bench",
        model=Scripted(model="scripted", plan=plan, tally=tally),
        instruction=INSTRUCTIONS,
        tools=[step] if plan.turns else [],
    )
    return Runner(agent=agent, app_name="bench", session_service=sessions)


def _events(runner: Runner, config: RunConfig) -> Any:
    """One run in a new session, which is deleted afterwards."""

    async def events() -> AsyncIterator[Any]:
        sessions = runner.session_service
        session = await sessions.create_session(app_name="bench", user_id="user")
        message = types.Content(role="user", parts=[types.Part(text=PROMPT)])
        async for event in runner.run_async(
            user_id="user", session_id=session.id, new_message=message, run_config=config
        ):
            yield event
        await sessions.delete_session(app_name="bench", user_id="user", session_id=session.id)

    return events


def run(plan: Plan, tally: Tally) -> Run:
    return _run(runner_of(plan, tally, InMemorySessionService()), plan)


def _run(runner: Runner, plan: Plan) -> Run:
    events = _events(runner, RunConfig(max_llm_calls=plan.turns + 10, telemetry=QUIET))

    async def once() -> str:
        text = ""
        async for event in events():
            if event.is_final_response():
                text = event.content.parts[0].text
        return text

    return once


def _delegating(plan: Plan, tally: Tally, *, as_tool: bool) -> Run:
    child = LlmAgent(
        name=plan.tool,
        description="Does research.",
        model=Scripted(model="scripted", plan=CHILD, tally=tally),
        instruction=INSTRUCTIONS,
        mode=None if as_tool else "single_turn",
    )
    agent = LlmAgent(
        name="bench",
        model=Scripted(model="scripted", plan=replace(plan, argument="request"), tally=tally),
        instruction=INSTRUCTIONS,
        tools=[AgentTool(child)] if as_tool else [],
        sub_agents=[] if as_tool else [child],
    )
    return _run(Runner(agent=agent, app_name="bench", session_service=InMemorySessionService()), plan)


def delegation(plan: Plan, tally: Tally) -> dict[str, Run]:
    return {
        "AgentTool": _delegating(plan, tally, as_tool=True),
        "single_turn": _delegating(plan, tally, as_tool=False),
    }


def stream(plan: Plan, tally: Tally) -> Run:
    events = _events(
        runner_of(plan, tally, InMemorySessionService()),
        RunConfig(streaming_mode=StreamingMode.SSE, telemetry=QUIET),
    )

    async def once() -> list[str]:
        return [event.content.parts[0].text async for event in events() if event.partial]

    return once
