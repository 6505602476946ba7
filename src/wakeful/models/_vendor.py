"""What the vendors' adapters share: SDKs imported on first use, checked settings, media."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, cast, get_type_hints

import msgspec

from ..errors import ConfigurationError, InvalidRequest
from ..types.content import Base64, Url
from ._history import Media, kind_of

__all__ = ["media_type_of", "sdk", "settings_of", "text_inside", "unsupported"]

T = TypeVar("T")


def sdk(module: str, extra: str) -> Any:
    """A vendor's SDK, imported now; says how to install it if it isn't there."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ConfigurationError(
            f"{extra} models need the package {module.partition('.')[0]!r}, which isn't installed: "
            f"pip install 'wakeful[{extra}]'"
        ) from None


def settings_of(vendor: str, extra: Mapping[str, Any], kind: type[T]) -> T:
    """`ModelSettings.extra` as the vendor's own settings, a TypedDict; what it doesn't know is refused by name."""
    if not extra:
        return cast(T, {})
    known = _names_in(kind)
    for name in extra:
        if name not in known:
            from difflib import get_close_matches  # Only an error needs it, and it is slow to import.

            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f" (known: {', '.join(sorted(known))})"
            raise InvalidRequest(f"{vendor} has no setting {name!r} for ModelSettings(extra=...){hint}")
    try:
        return msgspec.convert(extra, kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{vendor}'s settings in ModelSettings(extra=...) don't fit: {error}") from None


@cache
def _names_in(kind: type[Any]) -> tuple[str, ...]:
    """The names of the settings; to evaluate their types for each request would take longer than all else."""
    return tuple(get_type_hints(kind))


def unsupported(model: str, part: Media, where: str, hint: str = "") -> InvalidRequest:
    """The error for content that a vendor doesn't take."""
    source = part.source
    detail = f" ({source.media_type})" if isinstance(source, Base64) else ""
    by = " by URL" if isinstance(source, Url) else ""
    return InvalidRequest(f"{model} takes no {kind_of(part)}{detail}{by} in {where}{'; ' + hint if hint else ''}")


def media_type_of(part: Media) -> str:
    """The media type of a part, lower case and without parameters; empty where only the vendor will see it."""
    source = part.source
    return source.media_type.partition(";")[0].strip().lower() if isinstance(source, Base64) else ""


def text_inside(part: Media) -> str | None:
    """The text of a document that is text, such as CSV; None for others."""
    kind = media_type_of(part)
    if not isinstance(part.source, Base64) or not (kind.startswith("text/") or kind in _TEXTUAL):
        return None
    try:
        return b64decode(part.source.data).decode()
    except ValueError:
        return None


_TEXTUAL = ("application/json", "application/xml", "application/yaml", "application/x-yaml")
