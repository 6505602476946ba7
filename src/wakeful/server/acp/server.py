"""The agent's side of a connection: sessions, which are threads, and their prompts, which are runs."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from acp import schema
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.stdio import stdio_streams
from pydantic import BaseModel, ValidationError

from ...errors import UnknownThread, UsageError, WakefulError, explain, report
from ...runtime import TenantRuntime
from ...stores import ThreadRecord
from ...types.content import Content
from ...types.ids import new_id
from ...types.runs import Author, Principal
from ...types.tickets import Ticket
from ..follow import Followed, start_of
from .client_tools import CLIENT_KINDS, ClientRefused, client_tools
from .content import parts_of
from .sessions import METADATA, Session, directory, faults, info, warn_of_servers
from .turns import Turn, TurnFailed
from .updates import PLAN, UpdateEncoder, plan_of

__all__ = ["AcpServer", "serve_stdio"]

VERSION = 1
PAGE = 100
TITLE = 80

_log = logging.getLogger("wakeful.server")

Handler = Callable[["AcpServer", Any], Awaitable[dict[str, Any]]]


async def serve_stdio(
    runtime: TenantRuntime, agents: Sequence[str], author: Author, principal: Principal | None = None
) -> None:
    """Serve agents to the client at stdin and stdout, until it closes stdin.

    What the process prints goes to stderr meanwhile. `author` decides on tickets, and runs belong to `principal`.
    """
    _check_pipes()
    printed = sys.stdout
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        reader, writer = await stdio_streams()
    finally:
        sys.stdout = printed
    async with runtime:
        await AcpServer(runtime, agents, author, principal, reader, writer).serve()


def _check_pipes() -> None:
    for descriptor, name in enumerate(("stdin", "stdout")):
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)):
            raise UsageError(f"{name} is neither a pipe nor a terminal; an editor starts this command, over pipes")


class AcpServer:
    """Answers the requests of one client."""

    def __init__(
        self,
        runtime: TenantRuntime,
        agents: Sequence[str],
        author: Author,
        principal: Principal | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._runtime = runtime
        self._agents = tuple(agents)
        self._author = author
        self._principal = principal
        self._sessions: dict[str, Session] = {}
        self._capabilities: dict[str, Any] = {}
        # The beginning of the ids of this client's own messages.
        self._own = f"acp:{new_id()}:"
        self._connection = Connection(self._handle, writer, reader, listening=False)

    async def serve(self) -> None:
        """Serve until the client closes its side. Runs go on: prompts that were cut off don't cancel them."""
        try:
            await self._connection.main_loop()
        finally:
            turns = [session.turn for session in self._sessions.values() if session.turn is not None]
            for turn in turns:
                turn.cancel()
            await asyncio.gather(*turns, return_exceptions=True)
            await self._connection.close()

    async def _handle(self, method: str, params: Any, is_notification: bool) -> dict[str, Any] | None:
        """Answer a request or a notification; raises `RequestError`."""
        found = _NOTIFICATIONS.get(method) if is_notification else _REQUESTS.get(method)
        if found is None:
            if is_notification:
                return None
            raise RequestError.method_not_found(method)
        kind, handler = found
        try:
            return await handler(self, kind.model_validate(params or {}))
        except RequestError:
            raise
        except ValidationError as error:
            raise RequestError(-32602, faults(error)) from error
        except UnknownThread as error:
            raise RequestError(-32002, str(error)) from error
        except (UsageError, ValueError) as error:
            raise RequestError(-32602, str(error)) from error
        except (WakefulError, TurnFailed) as error:
            raise RequestError(-32603, explain(error)) from error
        except Exception as error:
            report(_log, error, "the ACP method %s failed", method)
            raise RequestError(-32603, "internal error; the agent's log has it") from error

    # -- the client ------------------------------------------------------------------------------------------

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request to the client; raises `ClientRefused`."""
        try:
            return await self._connection.send_request(method, params)
        except RequestError as error:
            raise ClientRefused(str(error)) from error

    async def update(self, session: str, update: dict[str, Any]) -> None:
        """Send a session update."""
        await self._connection.send_notification("session/update", {"sessionId": session, "update": update})

    # -- sessions --------------------------------------------------------------------------------------------

    async def initialize(self, body: schema.InitializeRequest) -> dict[str, Any]:
        """Agree on the version, and take the client's capabilities."""
        from wakeful import __version__

        self._capabilities = (
            body.client_capabilities.model_dump(mode="json", by_alias=True, exclude_none=True)
            if body.client_capabilities is not None
            else {}
        )
        return {
            "protocolVersion": VERSION,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
            },
            "authMethods": [],
            "agentInfo": {"name": "wakeful", "title": "wakeful", "version": __version__},
        }

    async def new(self, body: schema.NewSessionRequest) -> dict[str, Any]:
        """Open a new session with the first agent."""
        cwd = directory(body.cwd)
        warn_of_servers(body.mcp_servers)
        session = Session(new_id(), cwd, self._agents[0])
        about = {METADATA: {"cwd": cwd, "agent": session.agent}}
        await self._runtime.threads.describe(session.id, metadata=about)
        self._sessions[session.id] = session
        return {"sessionId": session.id, **self._modes(session)}

    async def load(self, body: schema.LoadSessionRequest) -> dict[str, Any]:
        """Open a session again, and replay its messages."""
        session = await self._open(body.session_id, body.cwd, body.mcp_servers)
        encoder, after = UpdateEncoder("", self._kinds(session.agent)), 0
        while page := await self._runtime.threads.messages(session.id, after=after, limit=PAGE):
            for message in page:
                for update in encoder.message(message):
                    await self.update(session.id, update)
            after = page[-1].seq
        for update in plan_of((await self._runtime.threads.state(session.id)).get(PLAN)):
            await self.update(session.id, update)
        await self._continue(session, after)
        return self._modes(session)

    async def resume(self, body: schema.ResumeSessionRequest) -> dict[str, Any]:
        """Open a session again, without its messages."""
        session = await self._open(body.session_id, body.cwd, body.mcp_servers)
        await self._continue(session, (await self._runtime.threads.get(session.id)).head)
        return self._modes(session)

    async def _continue(self, session: Session, head: int) -> None:
        """Follow the run that an earlier client left open."""
        record = await self._runtime.threads.get(session.id)
        if record.open_run_id is not None:
            await self._follow_open(session, record.open_run_id, head)

    async def list(self, body: schema.ListSessionsRequest) -> dict[str, Any]:
        """A page of the sessions, newest first."""
        owner = None if self._principal is None else self._principal.id
        found = await self._runtime.threads.list(principal=owner, before=body.cursor, limit=PAGE)
        shown = [info(record) for record in found if METADATA in record.metadata]
        sessions = [each for each in shown if body.cwd is None or each["cwd"] == body.cwd]
        return {"sessions": sessions, **({"nextCursor": found[-1].id} if len(found) == PAGE else {})}

    async def set_mode(self, body: schema.SetSessionModeRequest) -> dict[str, Any]:
        """Choose the agent of the next prompt."""
        session = self._session(body.session_id)
        if body.mode_id not in self._agents:
            raise UsageError(f"no mode {body.mode_id!r:.80}; there are {', '.join(self._agents)}")
        session.agent = body.mode_id
        metadata = (await self._runtime.threads.get(session.id)).metadata
        about = {**metadata, METADATA: {"cwd": session.cwd, "agent": session.agent}}
        await self._runtime.threads.describe(session.id, metadata=about)
        return {}

    async def close(self, body: schema.CloseSessionRequest) -> dict[str, Any]:
        """Cancel the session's prompt, and forget the session here; its thread stays."""
        session = self._session(body.session_id)
        await self._cancel(session)
        self._sessions.pop(session.id, None)
        return {}

    async def delete(self, body: schema.DeleteSessionRequest) -> dict[str, Any]:
        """Delete a session's thread with everything it owns."""
        if (session := self._sessions.pop(body.session_id, None)) is not None:
            await self._cancel(session)
        await self._record(body.session_id)
        await self._runtime.threads.delete(body.session_id, children="cascade")
        return {}

    async def _open(self, session_id: str, cwd: str, servers: Sequence[Any] | None) -> Session:
        record = await self._record(session_id)
        warn_of_servers(servers)
        about: dict[str, Any] = record.metadata.get(METADATA) or {}
        agent: str | None = record.last_agent_id or about.get("agent")
        session = Session(
            record.id, directory(cwd), agent if agent is not None and agent in self._agents else self._agents[0]
        )
        if (known := self._sessions.get(session.id)) is not None and known.is_prompting:
            raise UsageError(f"session {session.id} has a prompt that runs; cancel it first")
        self._sessions[session.id] = session
        return session

    async def _record(self, session_id: str) -> ThreadRecord:
        record = await self._runtime.threads.get(session_id)
        mine = None if self._principal is None else self._principal.id
        if mine is not None and record.principal not in (None, mine):
            raise UnknownThread(f"no session {session_id!r:.80}")
        return record

    def _session(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise UnknownThread(f"no session {session_id!r:.80} is open here; session/load opens one")
        return session

    def _modes(self, session: Session) -> dict[str, Any]:
        if len(self._agents) == 1:
            return {}
        named = [(agent, self._runtime.agents[agent].description) for agent in self._agents]
        modes = [{"id": agent, "name": agent, **({"description": text} if text else {})} for agent, text in named]
        return {"modes": {"currentModeId": session.agent, "availableModes": modes}}

    def _kinds(self, agent: str) -> Mapping[str, str]:
        """The kinds of an agent's tools: a hint of a tool that is a kind of ACP."""
        kinds: dict[str, str] = dict(CLIENT_KINDS)
        for tool in self._runtime.agents[agent].tools:
            hints: Sequence[str] = getattr(tool, "hints", ())
            kinds |= {cast(Any, tool).spec.name: hint for hint in hints if hint in _KINDS}
        return kinds

    # -- prompts ---------------------------------------------------------------------------------------------

    async def prompt(self, body: schema.PromptRequest) -> dict[str, Any]:
        """Run the session's agent on a prompt, or tell it to the run that is open; returns at the turn's end."""
        session = self._session(body.session_id)
        if session.is_prompting:
            raise RequestError(
                -32600, f"session {session.id} has a prompt that runs; wait for its end, or cancel it"
            )
        blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in body.prompt]
        session.is_prompting, session.is_cancelled = True, False
        try:
            if not await self._steer(session, parts_of(blocks)):
                await self._start(session, blocks)
            reason = await asyncio.shield(cast(asyncio.Task[str], session.turn))
        finally:
            session.is_prompting = False
        return {"stopReason": "cancelled" if session.is_cancelled else reason}

    async def _steer(self, session: Session, parts: tuple[Content, ...]) -> bool:
        """Send input to the session's open run, and follow it; False if there is none."""
        record = await self._runtime.threads.get(session.id)
        if record.open_run_id is None:
            return False
        receipt = await self._runtime.send(session.id, parts, policy="steer", principal=self._principal)
        session.sent.add(receipt.message_id)
        # The run may have ended just now: then another one has the input.
        run_id = (await self._runtime.threads.get(session.id)).open_run_id or record.open_run_id
        if session.turn is None or session.turn.done() or session.run_id != run_id:
            await self._follow_open(session, run_id, record.head)
        return True

    async def _start(self, session: Session, blocks: list[dict[str, Any]]) -> None:
        record = await self._runtime.threads.get(session.id)
        if record.title is None:
            named = next((block["text"] for block in blocks if block["type"] == "text"), "")
            await self._runtime.threads.describe(session.id, title=named.strip().partition("\n")[0][:TITLE])
        taken = {spec.name for spec in self._runtime.agents.tools(session.agent)}
        handle = await self._runtime.start(
            session.agent,
            parts_of(blocks),
            thread=session.id,
            principal=self._principal,
            message_id=f"{self._own}{new_id()}",
            client_tools=client_tools(self._capabilities, session.cwd, taken),
        )
        self._follow(session, await start_of(self._runtime, handle.run_id, session.id), ())

    async def _follow_open(self, session: Session, run_id: str, head: int) -> None:
        """Follow an open run from an entry of its thread on, and ask about its open tickets."""
        waits = await self._runtime.tickets.list(run_id, status="open")
        self._follow(session, Followed(run_id, session.id, str(head)), waits)

    def _follow(self, session: Session, run: Followed, waits: Sequence[Ticket]) -> None:
        elicitation: dict[str, Any] = self._capabilities.get("elicitation") or {}
        turn = Turn(
            self._runtime,
            self,
            self._author,
            session.id,
            cwd=session.cwd,
            can_fill_forms=elicitation.get("form") is not None,
        )
        if session.turn is not None:
            session.turn.cancel()
        session.run_id = run.run_id
        session.turn = asyncio.create_task(
            turn.follow(run, UpdateEncoder(run.run_id, self._kinds(session.agent), self._own, session.sent), waits)
        )
        session.turn.add_done_callback(_log_failure)

    async def cancel(self, body: schema.CancelNotification) -> dict[str, Any]:
        """Cancel the session's prompt."""
        await self._cancel(self._session(body.session_id))
        return {}

    async def _cancel(self, session: Session) -> None:
        if session.turn is None or session.turn.done():
            return
        session.is_cancelled = True
        await self._runtime.cancel(session.run_id)


_KINDS = frozenset(
    {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"}
)


_REQUESTS: dict[str, tuple[type[BaseModel], Handler]] = {
    "initialize": (schema.InitializeRequest, AcpServer.initialize),
    "session/new": (schema.NewSessionRequest, AcpServer.new),
    "session/load": (schema.LoadSessionRequest, AcpServer.load),
    "session/resume": (schema.ResumeSessionRequest, AcpServer.resume),
    "session/list": (schema.ListSessionsRequest, AcpServer.list),
    "session/set_mode": (schema.SetSessionModeRequest, AcpServer.set_mode),
    "session/close": (schema.CloseSessionRequest, AcpServer.close),
    "session/delete": (schema.DeleteSessionRequest, AcpServer.delete),
    "session/prompt": (schema.PromptRequest, AcpServer.prompt),
}

_NOTIFICATIONS: dict[str, tuple[type[BaseModel], Handler]] = {
    "session/cancel": (schema.CancelNotification, AcpServer.cancel),
}


def _log_failure(turn: asyncio.Task[str]) -> None:
    if not turn.cancelled() and (error := turn.exception()) is not None and not isinstance(error, TurnFailed):
        report(_log, error, "a turn over ACP failed")
