"""The connection to a server: one task owns it, and everybody who needs it shares one attempt to connect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from secrets import randbelow
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...errors import InDoubt, ToolError
from .attempts import ATTEMPT, Attempt
from .settings import Settings
from .snapshot import ToolEntry, entries_of
from .stdio import stdio_streams

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp.client.session import ClientSession

__all__ = ["Connection", "Link", "Unavailable"]

_log = logging.getLogger("wakeful.mcp")

T = TypeVar("T")

IDLE_SECONDS = 300.0
FIRST_BACKOFF, MAX_BACKOFF = 1.0, 30.0
# How long a listing is taken for true if the server doesn't tell of changes.
LISTING_SECONDS = 60.0
CLOSE_SECONDS = 10.0
MAX_PAGES = 100

CLOSED, TIMED_OUT, INTERNAL = -32000, -32001, -32603
MAX_ERROR = 4_000

# Answers an elicitation of a 2025-11-25 server: (context, params) to a result.
Elicit = Callable[[Any, Any], Awaitable[Any]]


class Unavailable(ToolError):
    """A server can't be reached. Nothing was sent to it."""

    kind = "unavailable"


class Link:
    """One connection while it lasts."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self.client = client
        self.lost = asyncio.Event()
        self.used_at = loop.time()
        self.in_flight = 0
        self._listing: tuple[float, tuple[ToolEntry, ...]] | None = None
        # Set while the server tells of changes.
        self.is_told = False
        self._turn = asyncio.Lock()

    @property
    def session(self) -> ClientSession:
        """The SDK's session."""
        return self.client.session

    @property
    def is_modern(self) -> bool:
        """Whether the server speaks 2026-07-28, which knows no sessions."""
        return self.client.protocol_version >= "2026"

    def forget_listing(self) -> None:
        """List the tools again when they are needed."""
        self._listing = None

    async def entries(self, settings: Settings, *, max_age: float = LISTING_SECONDS) -> tuple[ToolEntry, ...]:
        """The tools that the server lists."""
        async with self._turn:
            now = asyncio.get_running_loop().time()
            if self._listing is not None and (self.is_told or now - self._listing[0] < max_age):
                return self._listing[1]
            entries = entries_of(settings, await self._list_tools(settings))
            self._listing = (now, entries)
            return entries

    async def _list_tools(self, settings: Settings) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        async for page in pages(self.session.list_tools, settings):
            found += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
        return found


async def pages(fetch: Callable[..., Awaitable[T]], settings: Settings) -> AsyncGenerator[T]:
    """Yield the pages of a list; raises `ToolError` if they don't end."""
    from mcp_types import PaginatedRequestParams

    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page: Any = await fetch(params=PaginatedRequestParams(cursor=cursor))
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return
    raise ToolError(f"a list of MCP server {settings.name!r} has more than {MAX_PAGES} pages, and was given up")


class Connection:
    """Connects to a server with one credential, on demand, and again once the connection is lost.

    After a failure, further attempts wait: until then requests fail at once with `Unavailable`.
    """

    def __init__(self, settings: Settings, headers: Mapping[str, str], elicit: Elicit) -> None:
        self.settings = settings
        self._headers = headers
        self._elicit = elicit
        # Owners that run: the last one, and those of lost links that still close.
        self._owners: set[asyncio.Task[None]] = set()
        self._ready: asyncio.Future[Link] | None = None
        self._stop = asyncio.Event()
        self._backoff = 0.0
        self._retry_at = 0.0
        self._failure: Exception | None = None

    # -- requests --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[Link]:
        """A live link, kept open while it is used; raises `Unavailable`."""
        link = await self._connect()
        link.in_flight += 1
        try:
            yield link
        finally:
            link.in_flight -= 1
            link.used_at = asyncio.get_running_loop().time()

    async def entries(self) -> tuple[ToolEntry, ...]:
        """The tools that the server lists now."""
        return await self.request(lambda link: link.entries(self.settings), may_repeat=True)

    async def request(self, send: Callable[[Link], Awaitable[T]], *, may_repeat: bool = False) -> T:
        """Send a request; once more on a new connection if it was not written, or if it `may_repeat`.

        Raises `InDoubt` if it was written and has no answer, `Unavailable` if it can't be written. The time limit
        is that of reading lists if it may be repeated.
        """
        limit = self.settings.timeout if may_repeat else None
        for is_last in (False, True):
            async with self.use() as link:
                attempt = Attempt()
                token = ATTEMPT.set(attempt)
                try:
                    async with asyncio.timeout(limit):
                        return await send(link)
                except TimeoutError:
                    raise Unavailable(f"{self._title} didn't answer within {limit:g} s") from None
                except Exception as error:
                    failure = self._failure_of(link, attempt, error)
                    if failure is None:
                        raise
                    is_repeatable = isinstance(failure, Unavailable) or (
                        may_repeat and isinstance(failure, InDoubt)
                    )
                    if is_last or not is_repeatable:
                        raise failure from error
                finally:
                    ATTEMPT.reset(token)
        raise AssertionError  # The second round returns or raises.

    def _failure_of(self, link: Link, attempt: Attempt, error: Exception) -> ToolError | None:
        """The failure behind an error of the SDK; None for other errors."""
        from mcp import MCPError

        if not isinstance(error, MCPError):
            return None
        code, text = error.code, error.message
        is_lost = code == CLOSED or attempt.has_lost_session
        if is_lost and (attempt.error is None or not link.is_modern):
            link.lost.set()
        if is_lost and not attempt.is_written:
            return Unavailable(f"{self._title} can't be reached: {text}")
        if is_lost or code in (TIMED_OUT, INTERNAL):
            return InDoubt(f"{self._title} gave no answer: {text}")
        return ToolError(f"{self._title} refused the request: {text}"[:MAX_ERROR])

    @property
    def _title(self) -> str:
        return f"MCP server {self.settings.name!r} ({self.settings.where})"

    # -- the owner -------------------------------------------------------------------------------------------

    async def _connect(self) -> Link:
        """The present link, or a new one; whoever comes meanwhile waits for the same attempt."""
        while True:
            ready = self._ready
            if ready is None or (ready.done() and _link_of(ready) is None):
                ready = self._begin()
            try:
                link = await asyncio.shield(ready)
            except asyncio.CancelledError:
                if ready.cancelled():
                    continue
                raise
            if not link.lost.is_set():
                return link
            if self._ready is ready:
                self._ready = None
                await self._leave()

    def _begin(self) -> asyncio.Future[Link]:
        """Start the owner of a new link, unless the last attempt failed a moment ago."""
        loop = asyncio.get_running_loop()
        left = self._retry_at - loop.time()
        if self._failure is not None and left > 0:
            raise self._refusal(f" (the next attempt is in {left:.0f} s)")
        self._stop = asyncio.Event()
        ready = self._ready = loop.create_future()
        ready.add_done_callback(_retrieve)
        owner = loop.create_task(self._own(ready, self._stop), name=f"mcp {self.settings.name}")
        self._owners.add(owner)
        owner.add_done_callback(self._owners.discard)
        return ready

    def _refusal(self, hint: str = "") -> Unavailable:
        return Unavailable(f"{self._title} can't be reached: {_explain(self._failure)}{hint}")

    async def _own(self, ready: asyncio.Future[Link], stop: asyncio.Event) -> None:
        """Connect, keep the connection while it is used, and close it: all in this task, as the SDK demands."""
        loop = asyncio.get_running_loop()
        attempt = Attempt()
        ATTEMPT.set(attempt)
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.settings.connect_timeout):
                    link = await self._open(stack)
                self._failure, self._backoff = None, 0.0
                ready.set_result(link)
                await self._keep(link, stop)
                link.lost.set()
        except BaseException as error:
            if not ready.done():
                self._fail(ready, attempt.error or error, loop)
            elif isinstance(error, Exception):
                _log.debug("the connection to %s ended with %s", self._title, _explain(error))
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
                raise

    def _fail(self, ready: asyncio.Future[Link], error: BaseException, loop: asyncio.AbstractEventLoop) -> None:
        if isinstance(error, asyncio.CancelledError):
            ready.cancel()
            return
        if isinstance(error, TimeoutError):
            error = TimeoutError(f"no answer within {self.settings.connect_timeout:g} s")
        self._failure = error if isinstance(error, Exception) else RuntimeError(_explain(error))
        self._backoff = min(max(2 * self._backoff, FIRST_BACKOFF), MAX_BACKOFF)
        self._retry_at = loop.time() + self._backoff
        ready.set_exception(self._refusal())

    async def _open(self, stack: AsyncExitStack) -> Link:
        from mcp.client import Client

        settings, loop = self.settings, asyncio.get_running_loop()
        made: list[Link] = []

        def on_lost() -> None:
            for link in made:
                link.lost.set()

        target: Any = settings.server
        elicit: Any = self._elicit if settings.elicitation == "ask" else None
        if settings.url is not None:
            from .http import http_streams

            target = http_streams(settings.url, self._headers, settings.connect_timeout)
        elif settings.command is not None:
            target = stdio_streams(settings, on_lost)

        async def on_message(message: Any) -> None:
            if type(message).__name__ == "ToolListChangedNotification":
                for link in made:
                    link.forget_listing()

        client = Client(
            target,
            client_info=_client_info(),
            message_handler=on_message,
            elicitation_callback=elicit,
            cache=None,
            mode="legacy" if settings.protocol == "2025-11-25" else settings.protocol,
        )
        await stack.enter_async_context(client)
        # The ids of requests begin anywhere, so that a call that another process continues has another id.
        dispatcher: Any = getattr(client.session, "_dispatcher", None)
        if isinstance(getattr(dispatcher, "_next_id", None), int):
            dispatcher._next_id = randbelow(2**31)
        link = Link(client, loop)
        made.append(link)
        return link

    async def _keep(self, link: Link, stop: asyncio.Event) -> None:
        """Return once the link is lost, unused for a while, or to be closed."""
        watcher = asyncio.ensure_future(_watch(link))
        waits = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(link.lost.wait())]
        try:
            while True:
                done, _ = await asyncio.wait(waits, timeout=IDLE_SECONDS / 5, return_when=asyncio.FIRST_COMPLETED)
                idle = asyncio.get_running_loop().time() - link.used_at
                if done or (not link.in_flight and idle > IDLE_SECONDS):
                    return
        finally:
            for task in (watcher, *waits):
                task.cancel()
            await asyncio.gather(watcher, *waits, return_exceptions=True)

    async def _leave(self) -> None:
        """Wait until the owner of a lost link has closed it."""
        self._stop.set()
        if self._owners:
            await asyncio.wait(self._owners, timeout=CLOSE_SECONDS)

    async def close(self) -> None:
        """Close the connection and end its processes, within a bound."""
        self._ready = None
        await self._leave()
        for owner in tuple(self._owners):
            owner.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await owner


async def _watch(link: Link) -> None:
    """Follow the changes that a server of 2026-07-28 tells of; without them a listing has an age."""
    capabilities = link.client.server_capabilities.tools
    tells = capabilities is not None and bool(capabilities.list_changed)
    if not link.is_modern:
        link.is_told = tells
        return
    if not tells:
        return
    with suppress(Exception):
        async with link.client.listen(tools_list_changed=True) as changes:
            link.is_told = True
            async for _ in changes:
                link.forget_listing()
    link.is_told = False
    link.forget_listing()


def _link_of(ready: asyncio.Future[Link]) -> Link | None:
    """The link of a finished attempt; None if it failed, or if the link is lost."""
    if ready.cancelled() or ready.exception() is not None:
        return None
    return ready.result()


def _retrieve(ready: asyncio.Future[Link]) -> None:
    """Mark the exception of an attempt as seen: nobody may wait for it any more."""
    if not ready.cancelled():
        ready.exception()


def _explain(error: BaseException | None) -> str:
    """An error in one line; of a group, the first error."""
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
    return f"{type(error).__name__}: {error}"[:500] if str(error) else type(error).__name__


def _client_info() -> Any:
    from importlib.metadata import version

    from mcp_types import Implementation

    return Implementation(name="wakeful", version=version("wakeful"))
