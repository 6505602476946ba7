"""Servers for the tests, as processes that can be killed and started again."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from free_ports import free_port
from wakeful import Agent, FunctionModel, ModelRequest, ScriptedModel, Turn, call
from wakeful.extensions.mcp import MCP
from wakeful.types.content import ToolReply, text_of

DEMO = Path(__file__).parent / "demo_server.py"


def command(*options: str, script: Path = DEMO) -> list[str]:
    """The command of a server."""
    return [sys.executable, str(script), *options]


class HttpServer:
    """A server behind HTTP, at one port through all its lives."""

    def __init__(self, *options: str, script: Path = DEMO) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._command = command("--port", str(self.port), *options, script=script)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> HttpServer:
        """Start the server, and wait until it listens."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                assert self._process.poll() is None, "the server has ended"
                time.sleep(0.02)

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> HttpServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


def one_call(name: str, **arguments: Any) -> ScriptedModel:
    """A model that makes one call, then says `done`."""
    return ScriptedModel([call(name, **arguments), "done"])


def caller(name: str, **arguments: Any) -> FunctionModel:
    """A model that makes one call in each run, whichever process it is in."""

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return text_of(last.reply.content) if last.reply is not None else call(name, **arguments)

    return FunctionModel(answer)


def reply(model: ScriptedModel) -> ToolReply:
    """The result that the model was shown last."""
    found = model.requests[-1].messages[-1].reply
    assert found is not None
    return found


def agent(model: Any, *tools: Any, **options: Any) -> Agent:
    """An agent with these tools."""
    return Agent("helper", model=model, tools=tools, **options)


def demo(*options: str, **settings: Any) -> MCP:
    """The demo server over stdio."""
    return MCP("demo", command=command(*options), connect_timeout=60, **settings)


__all__ = ["DEMO", "HttpServer", "Turn", "agent", "caller", "command", "demo", "one_call", "reply"]
