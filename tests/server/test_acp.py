"""`wakeful acp` with the official SDK's client, each session in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acp import schema
from acp.client.connection import ClientSideConnection
from acp.exceptions import RequestError

HERE = Path(__file__).parent

FILES = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
FORMS = {"elicitation": {"form": {}}}


class Editor:
    """A client that records what it is sent. `choose` answers requests for permissions."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.written: dict[str, str] = {}
        self.commands: list[list[str]] = []
        self.choose: Callable[[Any], str | None] = lambda call: "allow"
        self.saw = asyncio.Condition()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        async with self.saw:
            self.updates.append(update)
            self.saw.notify_all()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.asked.append(tool_call)
        option = self.choose(tool_call)
        if option == "wait":
            await asyncio.Event().wait()
        if option is None:
            return {"outcome": {"outcome": "cancelled"}}
        assert option in [each.option_id for each in options]
        return {"outcome": {"outcome": "selected", "optionId": option}}

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.asked.append(message)
        return {"action": "accept", "content": {"answer": "red"}}

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> Any:
        return {"content": f"the text of {path}"}

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> Any:
        self.written[path] = content
        return {}

    async def create_terminal(self, session_id: str, command: str, args: Any = None, **_: Any) -> Any:
        self.commands.append([command, *args])
        return {"terminalId": "t1"}

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        return {"exitCode": 0}

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        return {"output": "3 passed", "truncated": False}

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        self.commands.append(["release", terminal_id])
        return {}

    async def until(self, is_there: Callable[[], bool]) -> None:
        async with self.saw:
            await self.saw.wait_for(is_there)

    @property
    def said(self) -> str:
        return self._joined("agent_message_chunk")

    @property
    def heard(self) -> str:
        return self._joined("user_message_chunk")

    def _joined(self, kind: str) -> str:
        return "".join([each.content.text for each in self.updates if each.session_update == kind])

    def calls(self) -> dict[str, str]:
        """The last status of each tool call, by its title."""
        titles: dict[str, str] = {}
        statuses: dict[str, str] = {}
        for each in self.updates:
            if each.session_update in ("tool_call", "tool_call_update"):
                titles.setdefault(each.tool_call_id, each.title)
                statuses[each.tool_call_id] = each.status or statuses[each.tool_call_id]
        return {f"{titles[ident]} {place}": status for place, (ident, status) in enumerate(statuses.items())}


class Agent:
    """The agent's side: a `wakeful acp` process."""

    def __init__(self, connection: ClientSideConnection, process: subprocess.Popen[bytes]) -> None:
        self.connection = connection
        self.process = process

    async def new(self) -> str:
        return (await self.connection.new_session(cwd="/project", mcp_servers=[])).session_id

    async def load(self, session: str) -> Any:
        return await self.connection.load_session(cwd="/project", session_id=session, mcp_servers=[])

    async def prompt(self, session: str, text: str) -> str:
        block = schema.TextContentBlock(type="text", text=text)
        return (await self.connection.prompt(session_id=session, prompt=[block])).stop_reason


@asynccontextmanager
async def serve(folder: Path, editor: Editor, *arguments: str, **capabilities: Any) -> AsyncIterator[Agent]:
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    command = ["-m", "wakeful.cli", "acp", "acp_sample:runtime", *arguments]
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": path},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        writer, reader = await streams(process)
        connection = ClientSideConnection(editor, writer, reader, use_unstable_protocol=True)  # type: ignore[arg-type]
        able = schema.ClientCapabilities.model_validate(capabilities)
        made = await connection.initialize(protocol_version=1, client_capabilities=able)
        assert made.protocol_version == 1
        yield Agent(connection, process)
        await connection.close()
        writer.close()
        assert await asyncio.to_thread(process.wait) in (0, -signal.SIGKILL)
    finally:
        process.kill()
        process.wait()


async def streams(process: subprocess.Popen[bytes]) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
    """The pipes of a process."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
    return asyncio.StreamWriter(transport, protocol, None, loop), reader


async def test_acp_prompt_streams_an_answer(tmp_path: Path) -> None:
    editor = Editor()
    async with serve(tmp_path, editor) as agent:
        session = await agent.new()
        turn = asyncio.create_task(agent.prompt(session, "slow"))
        await editor.until(lambda: editor.said == "half of it, ")
        (tmp_path / "go").touch()
        assert await turn == "end_turn"
        assert editor.said == "half of it, and the rest"
        assert await agent.prompt(session, "hello") == "end_turn"
        assert editor.heard == ""  # The client knows its own prompts.


async def test_acp_client_tools_run_at_the_client(tmp_path: Path) -> None:
    editor = Editor()
    async with serve(tmp_path, editor, **FILES) as agent:
        session = await agent.new()
        assert await agent.prompt(session, "read") == "end_turn"
        assert editor.said == "Done: the text of /project/a.txt."
        assert editor.asked == []
        assert await agent.prompt(session, "write") == "end_turn"
        assert editor.written == {"/project/a.txt": "new"}
        assert [call.title for call in editor.asked] == ["Write /project/a.txt"]
        assert await agent.prompt(session, "run") == "end_turn"
        assert editor.commands == [["make", "test"], ["release", "t1"]]
        assert editor.said.endswith("3 passed\n[exit code 0].")
        editor.choose = lambda call: "reject"
        await agent.prompt(session, "run")
        assert "run_command was denied: rejected by the user" in editor.said
        assert len(editor.commands) == 2


async def test_acp_approvals_are_answered_in_parts_across_a_restart(tmp_path: Path) -> None:
    editor = Editor()
    editor.choose = lambda call: "allow" if call.raw_input == {"name": "a"} else "wait"
    async with serve(tmp_path, editor, "--as", "ann") as agent:
        session = await agent.new()
        turn = asyncio.create_task(agent.prompt(session, "drop"))
        await editor.until(lambda: "completed" in editor.calls().values())
        assert len(editor.asked) == 2
        agent.process.kill()
        with pytest.raises(ConnectionError):
            await turn
    later = Editor()
    async with serve(tmp_path, later, "--as", "ann") as agent:
        await agent.load(session)
        await later.until(lambda: later.said == "Done: dropped a; dropped b.")
        assert later.heard == "drop"
        assert [call.raw_input for call in later.asked] == [{"name": "b"}]


async def test_acp_turn_ends_when_others_must_approve(tmp_path: Path) -> None:
    editor = Editor()
    async with serve(tmp_path, editor, "--as", "ann") as agent:
        session = await agent.new()
        assert await agent.prompt(session, "pay") == "end_turn"
        assert editor.asked == []
        assert editor.said.startswith("The run waits for:\n- pay: an approval (ticket ")
    async with serve(tmp_path, editor) as agent:  # The user of the shell, who may override.
        await agent.load(session)
        await editor.until(lambda: editor.said.endswith("Done: paid 7."))


async def test_acp_session_continues_an_answer_after_a_kill(tmp_path: Path) -> None:
    editor = Editor()
    async with serve(tmp_path, editor) as agent:
        session = await agent.new()
        turn = asyncio.create_task(agent.prompt(session, "slow"))
        await editor.until(lambda: editor.said == "half of it, ")
        with pytest.raises(RequestError, match="has a prompt that runs"):
            await agent.prompt(session, "again")
        agent.process.kill()
        with pytest.raises(ConnectionError):
            await turn
    later = Editor()
    async with serve(tmp_path, later) as agent:
        await agent.load(session)
        await later.until(lambda: later.said == "half of it, ")
        (tmp_path / "go").touch()
        await later.until(lambda: later.said == "half of it, and the rest")
        assert later.heard == "slow"


async def test_acp_cancel_stops_the_run(tmp_path: Path) -> None:
    editor = Editor()
    async with serve(tmp_path, editor) as agent:
        session = await agent.new()
        turn = asyncio.create_task(agent.prompt(session, "slow"))
        await editor.until(lambda: editor.said != "")
        await agent.connection.cancel(session_id=session)
        assert await turn == "cancelled"
        turn = asyncio.create_task(agent.prompt(session, "drop"))
        editor.choose = lambda call: None
        await editor.until(lambda: len(editor.calls()) == 2)
        assert await turn == "end_turn"  # The questions are left open.
        assert "The run waits for" in editor.said


async def test_acp_questions_are_forms_of_clients_that_have_them(tmp_path: Path) -> None:
    editor = Editor()
    async with serve(tmp_path, editor, **FORMS) as agent:
        await agent.prompt(await agent.new(), "pick")
        assert editor.asked == ["Which colour?"]
        assert editor.said == "Done: picked red."
    plain = Editor()
    async with serve(tmp_path, plain) as agent:
        assert await agent.prompt(await agent.new(), "pick") == "end_turn"
        assert plain.asked == []
        assert "pick: an answer" in plain.said


async def test_acp_sessions_are_listed_loaded_and_deleted(tmp_path: Path) -> None:
    editor = Editor()
    async with serve(tmp_path, editor) as agent:
        connection = agent.connection
        made = await connection.new_session(cwd="/project", mcp_servers=[])
        assert [mode.id for mode in made.modes.available_modes] == ["helper", "other"]
        await connection.set_session_mode(session_id=made.session_id, mode_id="other")
        await agent.prompt(made.session_id, "hello")
        (listed,) = (await connection.list_sessions()).sessions
        assert (listed.session_id, listed.cwd, listed.title) == (made.session_id, "/project", "hello")
        assert (await connection.list_sessions(cwd="/elsewhere")).sessions == []
        editor.updates.clear()
        loaded = await agent.load(made.session_id)
        assert loaded.modes.current_mode_id == "other"
        assert (editor.heard, editor.said) == ("hello", "You said: hello")
        await connection._conn.send_request("session/delete", {"sessionId": made.session_id})
        assert (await connection.list_sessions()).sessions == []


async def test_acp_refuses_bad_requests_and_goes_on(tmp_path: Path) -> None:
    async with serve(tmp_path, Editor()) as agent:
        send = agent.connection._conn.send_request
        for method, params, code in [
            ("_vendor/thing", {}, -32601),
            ("session/unheard_of", {}, -32601),
            ("session/new", {"cwd": "relative", "mcpServers": []}, -32602),
            ("session/new", {"mcpServers": []}, -32602),
            ("session/load", {"sessionId": "nobody", "cwd": "/", "mcpServers": []}, -32002),
            ("session/prompt", {"sessionId": "nobody", "prompt": []}, -32002),
        ]:
            with pytest.raises(RequestError) as refused:
                await send(method, params)
            assert refused.value.code == code, refused.value
        session = await agent.new()
        with pytest.raises(RequestError, match="the input is empty"):
            await send("session/prompt", {"sessionId": session, "prompt": []})
        assert await agent.prompt(session, "hello") == "end_turn"


def test_acp_refuses_files_in_place_of_pipes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wakeful.cli", "acp", "acp_sample:runtime"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    assert done.returncode == 2
    assert b"an editor starts this command" in done.stderr
    assert b"Traceback" not in done.stderr
