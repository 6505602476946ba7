"""`wakeful serve`: a runtime's agents over HTTP."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError, WakefulError
from .exit_codes import ExitCode, reported
from .render import Renderer
from .target import load_runtime
from .worker import BusUrl, StoreUrl, as_worker

if TYPE_CHECKING:
    from ..server import Auth

__all__ = ["serve"]

# Seconds for open requests to end.
GRACE = 10


def serve(
    target: Annotated[str, typer.Argument(metavar="MODULE:RUNTIME", show_default=False)],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for one that is free.")] = 8000,
    agents: Annotated[str, typer.Option(metavar="A,B", help="The agents to serve; all by default.")] = "",
    token_env: Annotated[
        list[str] | None,
        typer.Option(metavar="[WHO=]NAME", help="A variable that holds a bearer token, and whose it is."),
    ] = None,
    api_key_env: Annotated[
        list[str] | None,
        typer.Option(metavar="[WHO=]NAME", help="A variable that holds an API key, and whose it is."),
    ] = None,
    public_url: Annotated[str | None, typer.Option(metavar="URL", help="Where callers reach it.")] = None,
    private_webhooks: Annotated[
        bool, typer.Option("--private-webhooks", help="Push to private addresses and over plain HTTP too.")
    ] = False,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Let everybody in who reaches the address.")] = False,
    concurrency: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many runs it has at once; others wait.")
    ] = None,
    workers: Annotated[
        bool, typer.Option("--workers/--no-workers", help="Run agents here, or leave that to other processes.")
    ] = True,
    store: StoreUrl = None,
    bus: BusUrl = None,
) -> None:
    """Serve agents over A2A, until SIGTERM or ctrl-C.

    Without a token or a key it listens on loopback only, unless --no-auth says
    that everybody may call. When it is stopped, runs are handed over to other
    processes on the store, as a worker does.
    """
    renderer = Renderer()
    with reported(renderer):
        server = _server()
        auth = _auth(token_env or [], api_key_env or [])
        if auth is None and not no_auth and not _is_loopback(host):
            raise UsageError(
                f"{host} can be reached from elsewhere, and there is no auth: give --token-env NAME or "
                "--api-key-env NAME, listen on 127.0.0.1, or say --no-auth if everybody may call"
            )
        runtime = load_runtime(target)
        if store or bus or concurrency is not None or not workers:
            runtime = as_worker(runtime, store, bus, None, concurrency, execute=workers)
        webhooks = server.Webhooks(allow_private=private_webhooks)
        names = [name.strip() for name in agents.split(",") if name.strip()] or None
        served = server.app(runtime, agents=names, auth=auth, public_url=public_url, webhooks=webhooks)
        _run(renderer, served, host, port, names or list(runtime.agents), auth)


def _server() -> Any:
    try:
        from .. import server
    except ImportError as error:
        raise UsageError("serving needs packages that aren't installed: pip install 'wakeful[server]'") from error
    return server


def _auth(tokens: Sequence[str], keys: Sequence[str]) -> Auth | None:
    if not tokens and not keys:
        return None
    from ..server import Auth

    return Auth(tokens=_secrets(tokens), api_keys=_secrets(keys))


def _secrets(given: Sequence[str]) -> dict[str, str]:
    """Secrets from the environment and their principals; a process list doesn't show the environment."""
    found: dict[str, str] = {}
    for each in given:
        who, _, name = each.rpartition("=")
        if not (secret := os.environ.get(name, "")):
            raise UsageError(f"the variable {name!r} is empty or not set; put the secret there: export {name}=...")
        found[secret] = who or "caller"
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _run(renderer: Renderer, served: Any, host: str, port: int, agents: Sequence[str], auth: Auth | None) -> None:
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None]:
            with super().capture_signals():
                yield
                # Uvicorn raises the signal again, but a signal is the regular end of this command.
                self._captured_signals.clear()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if self.should_exit:
                renderer.warn("stopped at once; what ran here is recovered by whoever runs it next")
                os._exit(ExitCode.ERROR)
            super().handle_exit(sig, frame)

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                bound = self.servers[0].sockets[0].getsockname()
                shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
                _tell(renderer, f"http://{shown}:{bound[1]}", agents, auth)

    with _listener(host, port) as listener:
        config = uvicorn.Config(served, log_level="warning", timeout_graceful_shutdown=GRACE, lifespan="on")
        server = Server(config)
        server.run([listener])
    if not server.started:
        raise WakefulError("the server couldn't start; what it said before tells why")


def _listener(host: str, port: int) -> socket.socket:
    """The listening socket; errors are raised here and not by the server."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(where[:2], family=family)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"can't listen on {host}:{port}: {why}; give another --port or --host") from error


def _tell(renderer: Renderer, url: str, agents: Sequence[str], auth: Auth | None) -> None:
    """Print the addresses of everything served."""
    for name in agents:
        base = url if len(agents) == 1 else f"{url}/a2a/{name}"
        renderer.line(f"{name}: A2A (JSON-RPC and HTTP+JSON) at {base}", "bold")
        renderer.note(f"card: {base}/.well-known/agent-card.json")
    renderer.note("callers need a token or a key" if auth is not None else "everybody who reaches this may call")
    renderer.note("ctrl-C stops it, a second one at once")
