"""`wakeful serve` that can't: each reason in one line, with the exit code of wrong usage."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from cli_process import Process
from typer.testing import Result

Wakeful = Callable[..., Result]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port", "99999"], "--port"),
        (["--port", "-1"], "--port"),
        (["--agents", "nope"], "error: no agent 'nope' to serve"),
        (["--public-url", "nope"], "error: public_url must begin with http:// or https://"),
        (["--host", "0.0.0.0"], "there is no auth"),
        (["--grpc", "0.0.0.0:0"], "error: gRPC at 0.0.0.0 can be reached from elsewhere, and there is no auth"),
        (["--grpc", "nope"], "error: 'nope' isn't HOST:PORT"),
        (["--grpc", "127.0.0.1:0", "--protocols", "agui"], "error: gRPC is a binding of A2A"),
        (["--grpc-url", "a.example:443"], "error: --grpc-url goes with --grpc"),
        (["--token-env", "NOT_SET_ANYWHERE"], "'NOT_SET_ANYWHERE' is empty or not set"),
    ],
)
def test_wrong_options_are_wrong_usage(wakeful: Wakeful, options: list[str], said: str) -> None:
    result = wakeful("serve", "sample:make", *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_taken_port_is_reported_in_one_line(wakeful: Wakeful) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = wakeful("serve", "sample:make", "--port", str(port))
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: can't listen on 127.0.0.1:{port}: ")
    assert line.endswith("give another --port or --host")


def test_grpc_address_is_shown_and_stop_is_clean(start: Callable[..., Process]) -> None:
    process = start("serve", "sample:make", "--port", "0", "--grpc", "127.0.0.1:0")
    process.read_until("gRPC: A2A at 127.0.0.1:")
    process.read_until("second one at once")
    process.interrupt()
    assert process.exit_code() == 0


def test_acp_names_install_command_when_package_is_missing() -> None:
    for missing in ("starlette", "acp"):
        code = f"import sys; sys.modules[{missing!r}] = None; from wakeful.cli import main; main()"
        command = [sys.executable, "-c", code, "acp", "sample:make"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: ")
        assert line.endswith("pip install 'wakeful[acp]'")


def test_missing_server_extra_names_install_command() -> None:
    code = "import sys; sys.modules['starlette'] = None; import wakeful.server"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'wakeful[server]'" in done.stderr.splitlines()[-1]


ASKING = """
from wakeful import Agent, Runtime
from wakeful.backends import BackendResult, Capabilities, ExecutionBackend, WaitingInput

class Asks(ExecutionBackend):
    capabilities = Capabilities()

    async def execute_root(self, request):
        if request.is_continuation:
            answer = request.new_messages[-1].reply.content[0].text
            return BackendResult(request.agent_id, response=f"You said {answer}")
        return BackendResult(request.agent_id, WaitingInput("Which city?"))

def make():
    return Runtime([Agent("far", backend=Asks())], store="app.db")
"""


def test_value_ticket_shows_command_usage(
    wakeful: Wakeful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"asking_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(ASKING)
    assert wakeful("run", f"{name}:make", "far", "Weather?").exit_code == 3
    ticket = wakeful("tickets", "list", "app.db").stdout.splitlines()[1].split()[0]
    for place in ("app.db", f"{name}:make"):
        result = wakeful("tickets", "approve", place, ticket)
        assert result.exit_code == 2
        assert "use `wakeful tickets` with answer VALUE or deny" in result.stderr
        assert "ticket." not in result.stderr
    assert "You said Oslo" in wakeful("tickets", "answer", f"{name}:make", ticket, "Oslo").stdout


def test_second_ctrl_c_stops_server_at_once(start: Callable[..., Process]) -> None:
    process = start("serve", "sample:make", "--agents", "stubborn", "--port", "0")
    process.read_until("second one at once")
    port = int(process.output.partition("http://127.0.0.1:")[2].split()[0])
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Go"}]}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}
    with closing(HTTPConnection("127.0.0.1", port, timeout=120)) as reader:
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        reader.request("POST", "/", json.dumps(asked), headers)
        assert reader.getresponse().status == 200
        process.interrupt()
        while _listens(port):
            pass
        process.interrupt()
        assert process.exit_code() == 1
    assert process.output.splitlines()[-1].startswith("warning: stopped at once; other processes recover")


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=120).close()
    except ConnectionError:
        return False
    return True
