"""OpenAI Agents SDK with its SQLite session, which stores conversations but no runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agents.memory import SessionSettings

from agents import Agent, Runner, SQLiteSession
from benchmarks.contenders.openai_agents import Scripted
from benchmarks.measures import INSTRUCTIONS, Plan, Tally, Turn

PACKAGES = ("openai-agents", "openai")


@asynccontextmanager
async def growth(plan: Plan, tally: Tally, address: str) -> AsyncIterator[Turn]:
    agent = Agent(name="bench", instructions=INSTRUCTIONS, model=Scripted(plan, tally))
    session = SQLiteSession("conversation", address, session_settings=SessionSettings(limit=20))

    async def turn(prompt: str) -> str:
        result = await Runner.run(agent, prompt, session=session)
        return result.final_output

    yield turn
    session.close()
