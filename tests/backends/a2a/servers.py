"""Remote agents for tests: servers of the official SDK, each on a loopback socket and its own thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill, Part
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

Scope, Receive, Send = Any, Any, Any
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Wrap = Callable[[App, Scope, Receive, Send], Awaitable[None]]


class Gate:
    """A gate that a test opens, awaited on event loops of other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def set(self) -> None:
        with self._lock:
            self._is_open = True
            for loop, opened in self._waiting:
                with suppress(RuntimeError):  # The loop is closed.
                    loop.call_soon_threadsafe(opened.set)

    async def wait(self) -> None:
        opened = asyncio.Event()
        with self._lock:
            if self._is_open:
                return
            self._waiting.append((asyncio.get_running_loop(), opened))
        await opened.wait()


class Turn:
    """One message that the remote agent received, and the means to answer it."""

    def __init__(self, context: RequestContext, queue: EventQueue, remote: Remote) -> None:
        self.context = context
        self.queue = queue
        self.remote = remote
        self.text = context.get_user_input()
        self.parts: list[Part] = list(context.message.parts) if context.message else []
        self.updater = TaskUpdater(queue, context.task_id or "", context.context_id or "")

    @property
    def is_new(self) -> bool:
        return self.context.current_task is None

    async def open(self) -> TaskUpdater:
        """Create a task and report that it is working."""
        if self.is_new:
            assert self.context.message is not None
            await self.queue.enqueue_event(new_task_from_user_message(self.context.message))
        await self.updater.start_work()
        return self.updater

    def says(self, text: str, *parts: Part) -> Any:
        return self.updater.new_agent_message([new_text_part(text), *parts])

    async def write(self, text: str, *, id: str = "answer", append: bool = False, last: bool = False) -> None:
        await self.updater.add_artifact([new_text_part(text)], artifact_id=id, append=append, last_chunk=last)

    async def reached(self, name: str) -> None:
        """Report that this point is reached, and wait until the test continues."""
        self.remote.at(name).set()
        await self.remote.gate(name).wait()


Behaviour = Callable[[Turn], Awaitable[None]]


class Executor(AgentExecutor):
    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        self._remote.messages.append(context.message.message_id)
        await self._remote.behaviour(Turn(context, event_queue, self._remote))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self._remote.cancelled.append(context.task_id or "")
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


class Remote:
    """A running server, with the `messages` ids that the agent got and all HTTP `requests`."""

    def __init__(self, behaviour: Behaviour, wrap: Wrap | None) -> None:
        self.behaviour = behaviour
        self.wrap = wrap
        self.url = ""
        self.card = AgentCard()
        self.messages: list[str] = []
        self.cancelled: list[str] = []
        self.heard: list[str] = []
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self._reached: dict[str, threading.Event] = {}
        self._gates: dict[str, Gate] = {}
        self._called = threading.Condition()

    def at(self, name: str) -> threading.Event:
        return self._reached.setdefault(name, threading.Event())

    def gate(self, name: str) -> Gate:
        return self._gates.setdefault(name, Gate())

    async def wait(self, name: str) -> None:
        """Wait until the agent reached a point."""
        assert await asyncio.to_thread(self.at(name).wait, 30), f"never reached {name!r}"

    async def called(self, condition: Callable[[], bool]) -> None:
        """Wait until the requests meet a condition."""

        def so() -> bool:
            with self._called:
                return self._called.wait_for(condition, 120)

        assert await asyncio.to_thread(so), "it never came to that"

    def calls(self, path: str) -> int:
        return sum(1 for _, seen, _ in self.requests if seen == path)

    def app(self, inner: App) -> App:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return
            headers = {k.decode(): v.decode() for k, v in scope["headers"]}
            with self._called:
                self.requests.append((scope["method"], scope["path"], headers))
                self._called.notify_all()
            if self.wrap is None:
                await inner(scope, receive, send)
            else:
                await self.wrap(inner, scope, receive, send)

        return app


def card_for(
    url: str,
    *,
    streaming: bool = True,
    bindings: Sequence[tuple[str, str]] = (("JSONRPC", "1.0"),),
    dedupes: bool = False,
) -> AgentCard:
    paths = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}
    extensions = [AgentExtension(uri="urn:wakeful:a2a:message-id-dedupe")] if dedupes else []
    return AgentCard(
        name="remote",
        description="A remote agent",
        version="1",
        supported_interfaces=[
            AgentInterface(url=url + paths.get(binding, ""), protocol_binding=binding, protocol_version=version)
            for binding, version in bindings
        ],
        capabilities=AgentCapabilities(streaming=streaming, extensions=extensions),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="talk", name="talk", description="talks", tags=["talk"])],
    )


@contextmanager
def listening(app: App, **options: Any) -> Iterator[str]:
    """Serve an ASGI app on a free loopback port, on its own thread."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(64)
        options = {"log_config": None, "lifespan": "off", "ws": "none", "timeout_graceful_shutdown": 1, **options}
        config = uvicorn.Config(app, **options)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([sock],), name="remote", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            thread.join(20)
            assert not thread.is_alive()


@contextmanager
def serving(
    behaviour: Behaviour,
    *,
    streaming: bool = True,
    bindings: Sequence[tuple[str, str]] = (("JSONRPC", "1.0"),),
    dedupes: bool = False,
    wrap: Wrap | None = None,
) -> Iterator[Remote]:
    """Serve a remote agent with this behaviour."""
    remote = Remote(behaviour, wrap)
    # The card names the port, which is known when the socket is bound.
    routes: list[Any] = []

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        await inner[0](scope, receive, send)

    inner: list[App] = []
    with listening(remote.app(late)) as url:
        remote.url = url
        card = remote.card = card_for(url, streaming=streaming, bindings=bindings, dedupes=dedupes)
        handler = DefaultRequestHandler(Executor(remote), InMemoryTaskStore(), card)
        legacy = any(version.startswith("0.3") for _, version in bindings)
        routes += create_agent_card_routes(card)
        routes += create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=legacy)
        routes += create_rest_routes(handler, path_prefix="/rest", enable_v0_3_compat=legacy)
        inner.append(Starlette(routes=routes))
        yield remote


@contextmanager
def tokens(
    lifetime: float | str = 3600, status: int = 200, fails_at: int = 0, **fields: str
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Serve an OAuth2 token endpoint; yields its URL and the received forms.

    Tokens are `token-1`, `token-2`, …; one request may fail, and `fields` override the response's.
    """
    seen: list[dict[str, str]] = []

    async def endpoint(request: Request) -> JSONResponse:
        form = (await request.body()).decode()
        seen.append({"form": form, "authorization": request.headers.get("authorization", "")})
        token = {"access_token": f"token-{len(seen)}", "token_type": "Bearer", "expires_in": lifetime}
        code = 503 if len(seen) == fails_at else status
        return JSONResponse({**token, **fields} if code == 200 else {"error": "denied"}, status_code=code)

    with listening(Starlette(routes=[Route("/token", endpoint, methods=["POST"])])) as url:
        yield f"{url}/token", seen
