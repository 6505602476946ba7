"""The driver, the address of a database without its password, and errors with their next step."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ...errors import StoreError, StoreFull, StoreUnavailable, WakefulError

__all__ = ["CONNECT_SECONDS", "Address", "explain_error", "is_broken", "is_conflict", "is_session_fault"]

CONNECT_SECONDS = 10.0
# The least time that a server has to answer, also with wait_seconds=0.
_LEAST_SECONDS = 1.0
# A statement that takes longer counts as a broken connection.
_STATEMENT_SECONDS = 60.0
# The statement of a large batch is longer than the driver caches by default.
_STATEMENT_BYTES = 64 * 1024

_UNREADABLE = (
    "the database's URL can't be read: write postgres://user:password@host:port/database, with special characters "
    "in the password as %XX"
)


class Address:
    """The address of a schema in a database. Its password appears nowhere but on the wire."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self.schema = schema
        self.place = _without_password(url)

    async def connect(
        self,
        prepare: Callable[[Any], Awaitable[None]] | None,
        wait_seconds: float,
        settings: Mapping[str, str] | None = None,
    ) -> Any:
        """Open a connection on the running loop, and run `prepare` on it."""
        driver = _driver()
        try:
            connection = await driver.connect(
                self._url,
                timeout=min(CONNECT_SECONDS, max(wait_seconds, _LEAST_SECONDS)),
                command_timeout=_STATEMENT_SECONDS,
                max_cacheable_statement_size=_STATEMENT_BYTES,
                server_settings={
                    "search_path": f'"{self.schema}"',
                    "application_name": "wakeful",
                    **(settings or {}),
                },
            )
        except (ValueError, driver.ClientConfigurationError):
            # The cause may quote the URL.
            raise StoreUnavailable(_UNREADABLE) from None
        if prepare is not None:
            try:
                await prepare(connection)
            except BaseException:
                connection.terminate()
                raise
        return connection


def _driver() -> Any:
    try:
        return import_module("asyncpg")
    except ImportError as error:
        raise StoreUnavailable(
            "Postgres needs a driver that isn't installed: pip install 'wakeful[postgres]'"
        ) from error


def _without_password(url: str) -> str:
    """The address without its password."""
    scheme, separator, _ = str(url).partition("://")
    if not separator or scheme not in ("postgres", "postgresql"):
        raise StoreUnavailable("a Postgres store's URL begins with postgres:// or postgresql://")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise StoreUnavailable(_UNREADABLE) from None
    login, _, hosts = parts.netloc.rpartition("@")
    if "@" in login or ("@" in url and not login):
        raise StoreUnavailable(_UNREADABLE)  # A password with / or # in it: the rest would be shown as a host.
    if not re.fullmatch(r"[\w.,:%\[\]-]*", hosts):
        raise StoreUnavailable(_UNREADABLE)
    user = unquote(login.partition(":")[0])
    hosts = hosts or parse_qs(parts.query).get("host", ["localhost"])[0]
    return f"{scheme}://{user}{'@' if user else ''}{hosts}{parts.path}"


# -- errors --------------------------------------------------------------------------------------------------

_STARTING = ("57P03", "53300")
_BROKEN = ("57P01", "57P02", "57P05", *_STARTING)
_CLASHES = ("40001", "40P01", "23505")
# Errors that the settings of a session may cause. A session keeps the settings it was opened with.
_OF_SESSION = ("25006", "55P03", "57014")


def _state(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""


def is_broken(error: BaseException, *, ever_connected: bool = True) -> bool:
    """Whether the connection broke or couldn't be made, so that a retry may help.

    A server that was never reached is waited for only if it reports that it is starting.
    """
    state = _state(error)
    if not ever_connected:
        return state in _STARTING
    if state:
        return state.startswith("08") or state in _BROKEN
    # The driver's own errors for a connection that is closed or closing.
    own = type(error).__name__ in ("InterfaceError", "InternalClientError")
    return own or isinstance(error, OSError | EOFError | TimeoutError)


def is_session_fault(error: BaseException) -> bool:
    """Whether the session's settings may be the cause. A new session has the server's present settings."""
    return _state(error) in _OF_SESSION


def is_conflict(error: BaseException) -> bool:
    """Whether a concurrent transaction was in the way: nothing was written, and a retry may succeed."""
    return _state(error) in _CLASHES


_WORDS = {
    "28P01": "refused the login: check the user and the password in the URL",
    "28000": "refused the login: check the user in the URL, and the server's pg_hba.conf",
    "3D000": "has no database of that name: create it (createdb), or give another in the URL",
    "42501": "gives this user too few rights ({why}): its owner grants them, for a new schema with GRANT CREATE "
    "ON DATABASE, for one that is there with GRANT ALL on the schema, its tables and its sequences",
    "25006": "takes no writes, it is read-only ({why}): give the URL of the primary",
    "53300": "has no connection left: make pool_size smaller, or the server's max_connections larger",
    "55P03": "has rows that another session has locked ({why}): try again, or raise the server's lock_timeout",
    "57014": "cancelled the statement ({why}): make the server's statement_timeout longer",
    "3F000": "has lost the store's schema ({why}): restore it from a backup",
    "42P01": "has lost a table of the store ({why}): restore it from a backup",
}


def explain_error(error: BaseException, place: str) -> WakefulError:
    """The error of the driver or the server, with what to do about it."""
    if isinstance(error, WakefulError):
        return error
    state, why = _state(error), (str(error) or type(error).__name__).splitlines()[0]
    if state.startswith("53") and state != "53300":
        found: StoreError = StoreFull(f"{place} has no room left ({why}); nothing was written")
    elif state in _WORDS:
        found = StoreUnavailable(f"{place} {_WORDS[state].format(why=why)}")
    elif is_broken(error):
        found = StoreUnavailable(
            f"{place} can't be reached ({why}): check that the server runs, and the host and port in the URL"
        )
    else:
        found = StoreError(f"{place}: {why}")
    found.__cause__ = error
    return found
