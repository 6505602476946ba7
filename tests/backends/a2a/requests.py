"""Requests to a backend without a runtime, with its saved state and streamed text."""

from __future__ import annotations

from typing import Any

from wakeful.backends import AbortRequest, BackendResult, RootRequest
from wakeful.backends.a2a import A2ABackend, A2AFactory
from wakeful.types.messages import Message, user_message
from wakeful.types.runs import Identity


class Crash(BaseException):
    """A simulated end of the process."""


class Thread:
    """A thread with one remote agent: the state that a runtime keeps between requests."""

    def __init__(self, backend: A2ABackend) -> None:
        self.backend = backend
        self.state: dict[str, Any] | None = None
        self.saved: list[dict[str, Any]] = []
        self.shown: list[str] = []
        self.crash_at: str | None = None

    async def save(self, state: dict[str, Any]) -> None:
        self.state = state
        self.saved.append(state)
        if self.crash_at == state["stage"]:
            self.crash_at = None
            raise Crash

    async def ask(self, *said: str | Message, run: str = "run-1", is_answer: bool = False) -> BackendResult:
        """Send a text to the agent and keep the state."""
        messages = tuple([user_message(each) if isinstance(each, str) else each for each in said])
        request = RootRequest(
            agent_id="analyst",
            messages=messages,
            new_messages=messages,
            identity=identity(run),
            is_continuation=is_answer,
            state=self.state,
            emit=self.shown.append,
            save=self.save,
        )
        result = await self.backend.execute_root(request)
        self.state = result.state or self.state
        return result

    async def abort(self, run: str = "run-1") -> None:
        await self.backend.abort(AbortRequest(agent_id="analyst", identity=identity(run), state=self.state))


def identity(run: str) -> Identity:
    return Identity(run, "thread-1", "analyst", run)


def thread(url: str, **settings: Any) -> Thread:
    """A thread with the agent at a URL, with a timeout of ten seconds and private addresses allowed."""
    endpoint = {"url": url, "allow_private": True, "timeout": 10.0, "connect_timeout": 0, **settings}
    return Thread(A2AFactory().build(endpoint))
