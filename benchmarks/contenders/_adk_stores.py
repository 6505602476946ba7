"""Google ADK with sessions in a database: every event is saved at once."""

from typing import Any

from google.adk.agents.run_config import RunConfig
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from benchmarks.contenders.google_adk import QUIET, runner_of
from benchmarks.measures import PROMPT, Durable, Plan, Tally, Turn


async def _answer(runner: Any, session_id: str, prompt: str, config: RunConfig) -> str:
    text, message = "", types.Content(role="user", parts=[types.Part(text=prompt)])
    events = runner.run_async(user_id="user", session_id=session_id, new_message=message, run_config=config)
    async for event in events:
        if event.is_final_response():
            text = event.content.parts[0].text
    return text


def runs(sessions: Any, plan: Plan, tally: Tally) -> Durable:
    runner = runner_of(plan, tally, sessions)
    config = RunConfig(max_llm_calls=plan.turns + 10, telemetry=QUIET)

    async def once() -> str:
        session = await sessions.create_session(app_name="bench", user_id="user")
        return await _answer(runner, session.id, PROMPT, config)

    return Durable(once)


async def turns(sessions: Any, plan: Plan, tally: Tally) -> Turn:
    runner = runner_of(plan, tally, sessions)
    session = await sessions.create_session(app_name="bench", user_id="user")
    config = RunConfig(telemetry=QUIET, get_session_config=GetSessionConfig(num_recent_events=20))

    async def turn(prompt: str) -> str:
        return await _answer(runner, session.id, prompt, config)

    return turn
