"""What the SDKs of OpenAI and Anthropic have in common: one generator made both, on one HTTP client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..errors import InvalidRequest, ModelError, WakefulError, explain
from ._faults import broken, error_of, fault_of, unreachable
from ._protocol import Chunk
from ._secrets import hide

__all__ = ["Reader", "http_client", "streamed"]

# How long a connection that has told all is waited for to end, so that the next call can use it.
_ENDING = 1.0


class Reader(Protocol):
    """Reads one answer. `whole` is True once the vendor has said why it stopped."""

    whole: bool

    def read(self, event: Any) -> Sequence[Chunk]:
        """The chunks that an event is."""
        ...

    def end(self) -> Sequence[Chunk]:
        """What is left to say when the answer is whole."""
        ...


def http_client(module: Any, proxy: str | None, given: Any) -> Any:
    """The HTTP client for an SDK: the caller's, or one that goes through a proxy, or None for the SDK's own."""
    if given is not None or proxy is None:
        return given
    return module.DefaultAsyncHttpxClient(proxy=proxy)


async def streamed(
    model: str, open_stream: Callable[[], Awaitable[Any]], reader: Reader, secrets: Callable[[], Iterable[str]]
) -> AsyncIterator[Chunk]:
    """The chunks of one call. Whatever goes wrong is raised as what it is, without the SDK's own error, which may
    show what a vendor repeats of the request; and without the secrets."""
    try:
        try:
            stream = await open_stream()
        except Exception as error:
            raise _translated(model, error, began=False) from None
        request_id = _request_id(stream.response.headers)
        try:
            kind = stream.response.headers.get("content-type", "text/event-stream")
            if "event-stream" not in kind:
                raise _no_stream(model, kind, request_id)
            take, read = stream.__anext__, reader.read
            while not reader.whole:
                try:
                    chunks = read(await take())
                except StopAsyncIteration:
                    break
                except Exception as error:
                    raised = _translated(model, error, began=True)
                    if isinstance(raised, ModelError):
                        raised.request_id = raised.request_id or request_id
                    raise raised from None
                for chunk in chunks:
                    yield chunk
            if not reader.whole:
                raise broken(model, "it ended before the vendor said why it stopped", request_id=request_id)
            for chunk in await _rest(take, reader):
                yield chunk
        finally:
            await stream.close()
        for chunk in reader.end():
            yield chunk
    except ModelError as error:
        hide(error, secrets())
        raise


def _no_stream(model: str, kind: str, request_id: str | None) -> InvalidRequest:
    return InvalidRequest(
        f"{model}: the vendor answered with {kind}, not with a stream (text/event-stream); the base URL is wrong, "
        "or the server can't stream",
        request_id=request_id,
    )


async def _rest(take: Callable[[], Awaitable[Any]], reader: Reader) -> list[Chunk]:
    """What comes after the answer, such as its usage. It is read to the end so that the connection can be used
    again; a failure there takes nothing from the answer."""
    chunks: list[Chunk] = []
    try:
        async with asyncio.timeout(_ENDING):
            while True:
                chunks += reader.read(await take())
    except (StopAsyncIteration, TimeoutError):
        pass
    except Exception:  # noqa: S110 - the answer is whole
        pass
    return chunks


def _translated(model: str, error: Exception, *, began: bool) -> WakefulError:
    if isinstance(error, WakefulError):
        return error
    import httpx2 as http  # It came with the SDK, whichever it is.

    kind = type(error).__name__
    if kind == "APITimeoutError" or isinstance(error, http.TimeoutException):
        return unreachable(model, error, timeout=True)
    if kind == "APIConnectionError" or isinstance(error, http.TransportError):
        if began:
            return broken(model, str(error.__cause__ or error))
        return unreachable(model, error, timeout=False)
    response = getattr(error, "response", None)
    headers: Mapping[str, str] = {} if response is None else response.headers
    if hasattr(error, "body") and hasattr(error, "message"):
        status: int | None = getattr(error, "status_code", None)
        body: Any = error.body or getattr(error, "message")  # noqa: B009 # pyright: ignore
        return error_of(model, fault_of(status, body, dict(headers)))
    if began:
        return broken(model, f"a piece of it makes no sense ({explain(error):.200})")
    return ModelError(f"{model} could not be asked: {explain(error)}")


def _request_id(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-request-id") or headers.get("request-id")
