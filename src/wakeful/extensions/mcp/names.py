"""Names of tools: deterministic, and unique within a server whatever the server lists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256

__all__ = ["prefix_of", "tool_names"]

MAX_NAME = 64
_DIGEST = 6
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def prefix_of(server: str) -> str:
    """The beginning of the names of a server's tools."""
    return f"mcp__{server}__"


def tool_names(server: str, originals: Iterable[str]) -> dict[str, str]:
    """Our names for the tools of a server, by their names there.

    A name that is too long, or that another one reads like once it is cleaned, ends with a digest of the original.
    The order of the tools doesn't matter.
    """
    wanted = {original: prefix_of(server) + _UNFIT.sub("_", original) for original in originals}
    times = Counter(wanted.values())
    return {
        original: name if times[name] == 1 and len(name) <= MAX_NAME else _with_digest(name, original)
        for original, name in wanted.items()
    }


def _with_digest(name: str, original: str) -> str:
    digest = sha256(original.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    return f"{name[: MAX_NAME - _DIGEST - 1]}_{digest}"
