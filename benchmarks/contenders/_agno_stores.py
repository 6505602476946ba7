"""Agno with a database: each batch of tool calls is saved, as crash recovery needs."""

from itertools import count
from typing import Any

from benchmarks.contenders.agno import agent_of
from benchmarks.measures import PROMPT, Durable, Plan, Tally, Turn


def runs(db: Any, plan: Plan, tally: Tally) -> Durable:
    agent, numbers = agent_of(plan, tally, db=db, checkpoint="tool-batch"), count()

    async def once() -> str:
        output = await agent.arun(PROMPT, session_id=f"session-{next(numbers)}")
        return output.content

    return Durable(once)


def turns(db: Any, plan: Plan, tally: Tally) -> Turn:
    # A run is one turn of two messages.
    agent = agent_of(plan, tally, db=db, add_history_to_context=True, num_history_runs=10)

    async def turn(prompt: str) -> str:
        output = await agent.arun(prompt, session_id="conversation")
        return output.content

    return turn
