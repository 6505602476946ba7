"""The HTTP client: the verbs of `Runtime` behind a URL. It needs the extra `wakeful[client]`."""

from __future__ import annotations

try:
    from .client import Client, RunHandle
    from .http import Unreachable
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "wakeful":
        raise
    raise ModuleNotFoundError(
        f"wakeful.client needs the package {error.name!r}: pip install 'wakeful[client]'", name=error.name
    ) from error

__all__ = ["Client", "RunHandle", "Unreachable"]
