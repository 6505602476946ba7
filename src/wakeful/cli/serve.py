"""`wakeful serve`: a runtime's agents over HTTP."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace

from ..errors import UsageError, WakefulError
from ..identity import JWT, ApiKeys, Authenticator, Tokens
from .exit_codes import ExitCode, reported
from .locations import secret_of
from .logs import show_log
from .render import Renderer
from .target import load_runtime
from .worker import BusUrl, StoreUrl, address_of, as_worker

__all__ = ["serve"]

# Seconds for open requests to end.
GRACE = 10
# Open files beside the connections: the store, the bus, calls of models and tools.
SPARE_FILES = 500
# What is said about the protocols that have one address for all agents.
OTHERS = {
    "openai": "Chat Completions and Responses: {url}/openai/v1",
    "agui": "AG-UI: {url}/agui/AGENT",
    "aisdk": "useChat: {url}/aisdk/v6/AGENT",
}


def serve(
    target: Annotated[str, typer.Argument(metavar="MODULE:RUNTIME", show_default=False)],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for one that is free.")] = 8000,
    agents: Annotated[str, typer.Option(metavar="A,B", help="The agents to serve; all by default.")] = "",
    protocols: Annotated[
        str,
        typer.Option(metavar="A,B", help="The protocols beside the HTTP API, such as a2a,openai; all by default."),
    ] = "",
    token_env: Annotated[
        list[str] | None,
        typer.Option(metavar="[WHO=]NAME", help="A variable that holds a bearer token, and whose it is."),
    ] = None,
    api_key_env: Annotated[
        list[str] | None,
        typer.Option(metavar="[WHO=]NAME", help="A variable that holds an API key, and whose it is."),
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="Accept the API keys of the store; see wakeful keys create.")
    ] = False,
    jwt_issuer: Annotated[
        str | None, typer.Option(metavar="URL", help="Accept the JWTs of this OpenID Connect issuer.")
    ] = None,
    jwt_audience: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The audience that JWTs must have.")
    ] = None,
    jwt_tenant: Annotated[
        str | None, typer.Option(metavar="CLAIM", help="The claim of JWTs that names the tenant.")
    ] = None,
    console_client_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The console's client id at the issuer: people log in there.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="A foreign origin whose pages may call. Repeatable.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate, for HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Require client certificates of this authority.")
    ] = None,
    public_url: Annotated[str | None, typer.Option(metavar="URL", help="Where callers reach it.")] = None,
    grpc: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Serve A2A over gRPC there, too.")] = None,
    grpc_url: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where callers reach gRPC, if that is elsewhere.")
    ] = None,
    private_webhooks: Annotated[
        bool, typer.Option("--private-webhooks", help="Push to private addresses and over plain HTTP too.")
    ] = False,
    export_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A variable that holds the key to sign exported threads with."),
    ] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Let everybody in who reaches the address.")] = False,
    limit: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="A limit of the server. Repeatable.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many runs it has at once; others wait.")
    ] = None,
    workers: Annotated[
        bool, typer.Option("--workers/--no-workers", help="Run agents here, or leave that to other processes.")
    ] = True,
    store: StoreUrl = None,
    bus: BusUrl = None,
) -> None:
    """Serve agents over HTTP (/v1) and other protocols, until SIGTERM or ctrl-C.

    Without --keys, a token or an issuer it listens on loopback only, unless
    --no-auth says that everybody may call. When it is stopped, runs are handed
    over to other processes on the store, as a worker does.
    """
    renderer = Renderer()
    with reported(renderer):
        server = _server()
        auth = _tokens(token_env or [], api_key_env or [])
        auth += _issuer(jwt_issuer, jwt_audience, jwt_tenant)
        is_open = not auth and not keys
        if is_open and not no_auth and not server.is_loopback(host):
            raise UsageError(
                f"{host} can be reached from elsewhere, and there is no auth: give --keys, --token-env NAME or "
                "--jwt-issuer URL, listen on 127.0.0.1, or say --no-auth if everybody may call"
            )
        tls = _tls(tls_cert, tls_key, tls_client_ca)
        limits = _limits(server.ServerLimits, limit or [])
        runtime = load_runtime(target, store)
        if bus or concurrency is not None or not workers:
            runtime = as_worker(runtime, bus, None, concurrency, execute=workers)
        webhooks = server.Webhooks(allow_private=private_webhooks)
        names = _names(agents)
        served = server.app(
            runtime,
            agents=names,
            auth=[*([ApiKeys(runtime.store)] if keys else []), *auth],
            limits=limits,
            public_url=public_url,
            webhooks=webhooks,
            # Who said --no-auth lets everybody in, by any name of the server.
            hosts=["*"] if no_auth else [host],
            origins=allow_origin or (),
            protocols=_names(protocols),
            login=_login(server.ConsoleLogin, console_client_id, jwt_issuer),
            export_key=None if export_key_env is None else secret_of(export_key_env).encode(),
            grpc=_grpc(server.Grpc, grpc, grpc_url, tls),
        )
        options = {"http": server.http_protocol(_allow_connections(renderer, limits)), **tls}
        chosen = _names(protocols) or ("a2a", *OTHERS)
        tell = partial(_tell, renderer, names or list(runtime.agents), chosen, is_open=is_open)
        _run(renderer, served, host, port, tell=tell, options=options)


def _names(given: str) -> list[str] | None:
    """Names separated by commas; None if there are none."""
    return [name.strip() for name in given.split(",") if name.strip()] or None


def _server() -> Any:
    try:
        from .. import server
    except ImportError as error:
        raise UsageError("serving needs packages that aren't installed: pip install 'wakeful[server]'") from error
    return server


def _tokens(tokens: Sequence[str], keys: Sequence[str]) -> list[Authenticator]:
    return [Tokens(tokens=_secrets(tokens), api_keys=_secrets(keys))] if tokens or keys else []


def _issuer(issuer: str | None, audience: str | None, tenant: str | None) -> list[Authenticator]:
    if issuer is None and audience is None and tenant is None:
        return []
    if issuer is None or audience is None:
        raise UsageError("JWTs need their issuer and their audience: give --jwt-issuer and --jwt-audience")
    return [JWT(issuer, audience, tenant=tenant, default_scopes=["user"])]


def _login(kind: Any, client_id: str | None, issuer: str | None) -> Any:
    if client_id is None:
        return None
    if issuer is None:
        raise UsageError("the console's people log in at an issuer: give --jwt-issuer beside --console-client-id")
    return kind(issuer=issuer, client_id=client_id)


def _tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> dict[str, Any]:
    """The TLS options of the server."""
    given = {"ssl_certfile": certificate, "ssl_keyfile": key, "ssl_ca_certs": client_ca}
    if certificate is None:
        if any(given.values()):
            raise UsageError("--tls-key and --tls-client-ca go with --tls-cert FILE")
        return {}
    for path in given.values():
        if path is not None and not path.is_file():
            raise UsageError(f"there is no file {str(path)!r}")
    found: dict[str, Any] = {name: str(path) for name, path in given.items() if path is not None}
    return found if client_ca is None else {**found, "ssl_cert_reqs": ssl.CERT_REQUIRED}


def _grpc(kind: Any, address: str | None, url: str | None, tls: Mapping[str, Any]) -> Any:
    """Where to listen for gRPC, with the TLS files of HTTP; None if it isn't served."""
    if address is None:
        if url is not None:
            raise UsageError("--grpc-url goes with --grpc HOST:PORT")
        return None
    host, port = address_of(address)
    with _listener(host, port, "--grpc"):
        pass
    files = {"certificate": "ssl_certfile", "key": "ssl_keyfile", "client_ca": "ssl_ca_certs"}
    found = {name: Path(tls[option]) for name, option in files.items() if option in tls}
    return kind(host=host, port=port, url=url, **found)


def _limits(kind: Any, given: Sequence[str]) -> Any:
    """The limits of the server, with those that are given as NAME=N."""
    names = kind.__struct_fields__
    found: dict[str, str] = {}
    for each in given:
        name, _, value = each.partition("=")
        if name not in names:
            raise UsageError(f"there is no limit {name!r:.80}; there are {', '.join(names)}")
        found[name] = value
    try:
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"--limit takes NAME=N: {error}") from None


def _allow_connections(renderer: Renderer, limits: Any) -> Any:
    """Raise the process's limit of open files to what the connections need; the limits that result."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return limits
    wanted = limits.connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in (soft, hard) or wanted <= hard:
        if soft not in (resource.RLIM_INFINITY, hard) and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    fewer = max(hard - SPARE_FILES, hard // 2)
    renderer.warn(
        f"at most {fewer:,} connections, not {limits.connections:,}: this process may have {hard:,} open files; "
        "raise the system's limit (ulimit -n)"
    )
    return replace(limits, connections=fewer)


def _secrets(given: Sequence[str]) -> dict[str, str]:
    """Secrets from the environment and their principals; a process list doesn't show the environment."""
    found: dict[str, str] = {}
    for each in given:
        who, _, name = each.rpartition("=")
        found[secret_of(name)] = who or "caller"
    return found


def _run(
    renderer: Renderer,
    served: Any,
    host: str,
    port: int,
    *,
    tell: Callable[[str, Any], None],
    options: dict[str, Any],
) -> None:
    import uvicorn

    show_log()

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None]:
            with super().capture_signals():
                yield
                # Uvicorn raises the signal again, but a signal is the regular end of this command.
                self._captured_signals.clear()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if self.should_exit:
                renderer.warn("stopped at once; other processes recover the runs")
                os._exit(ExitCode.ERROR)
            super().handle_exit(sig, frame)

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                bound = self.servers[0].sockets[0].getsockname()
                shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
                scheme = "https" if "ssl_certfile" in options else "http"
                tell(f"{scheme}://{shown}:{bound[1]}", served.state.serving)

    with _listener(host, port) as listener:
        config = uvicorn.Config(
            served, log_level="warning", timeout_graceful_shutdown=GRACE, lifespan="on", **options
        )
        server = Server(config)
        server.run([listener])
    if not server.started:
        raise WakefulError("the server couldn't start; what it said before tells why")


def _listener(host: str, port: int, option: str = "--port or --host") -> socket.socket:
    """The listening socket; errors are raised here and not by the server."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(where[:2], family=family)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"can't listen on {host}:{port}: {why}; give another {option}") from error


def _tell(
    renderer: Renderer, agents: Sequence[str], protocols: Sequence[str], url: str, serving: Any, *, is_open: bool
) -> None:
    """Print the addresses of everything served."""
    for name in agents if "a2a" in protocols else ():
        base = url if len(agents) == 1 else f"{url}/a2a/{name}"
        renderer.line(f"{name}: A2A (JSON-RPC and HTTP+JSON) at {base}", "bold")
        renderer.note(f"card: {base}/.well-known/agent-card.json")
    if serving.grpc_port is not None:
        renderer.note(f"gRPC: A2A at {serving.grpc.address(serving.grpc_port)}")
    renderer.note(f"console: {url}/console/")
    renderer.note(f"HTTP API: {url}/v1 (described by {url}/openapi.json)")
    for protocol, address in OTHERS.items():
        if protocol in protocols:
            renderer.note(address.format(url=url))
    renderer.note("everybody who reaches this may call" if is_open else "callers need a key or a token")
    renderer.note("ctrl-C stops it, a second one at once")
