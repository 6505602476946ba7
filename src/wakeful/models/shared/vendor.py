"""Helpers of the vendor adapters: SDK imports, vendor settings, media."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, cast, get_type_hints

import msgspec

from ...errors import ConfigurationError, InvalidRequest
from ...types.content import Base64, Url
from .history import Media, media_kind

__all__ = ["document_text", "media_type_of", "parse_extra", "sdk", "unsupported"]

T = TypeVar("T")


def sdk(module: str, extra: str) -> Any:
    """Import a vendor's SDK; raises `ConfigurationError` with the install command if it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ConfigurationError(
            f"{extra} models need the package {module.partition('.')[0]!r}, which isn't installed: "
            f"pip install 'wakeful[{extra}]'"
        ) from None


def parse_extra(vendor: str, extra: Mapping[str, Any], kind: type[T]) -> T:
    """Convert `ModelSettings.extra` to the vendor's settings, a TypedDict; raises `InvalidRequest`."""
    if not extra:
        return cast(T, {})
    known = _names_in(kind)
    for name in extra:
        if name not in known:
            from difflib import get_close_matches  # Slow to import, and needed for errors only.

            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f" (known: {', '.join(sorted(known))})"
            raise InvalidRequest(f"{vendor} has no setting {name!r} for ModelSettings(extra=...){hint}")
    try:
        return msgspec.convert(extra, kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{vendor}'s settings in ModelSettings(extra=...) don't fit: {error}") from None


@cache
def _names_in(kind: type[Any]) -> tuple[str, ...]:
    """The names of the settings, cached: evaluating the type hints is slow."""
    return tuple(get_type_hints(kind))


def unsupported(model: str, part: Media, where: str, hint: str = "") -> InvalidRequest:
    """Build the error for content that a vendor doesn't accept."""
    source = part.source
    kind = source.media_type if isinstance(source, Base64 | Url) else None
    detail = f" ({kind})" if kind else ""
    by = " by URL" if isinstance(source, Url) else ""
    return InvalidRequest(
        f"{model} takes no {media_kind(part)}{detail}{by} in {where}{'; ' + hint if hint else ''}"
    )


def media_type_of(part: Media) -> str:
    """The media type of a part, lower case and without parameters; empty for a URL."""
    source = part.source
    return source.media_type.partition(";")[0].strip().lower() if isinstance(source, Base64) else ""


def document_text(part: Media) -> str | None:
    """The text of a textual document, such as CSV; None for others."""
    kind = media_type_of(part)
    if not isinstance(part.source, Base64) or not (kind.startswith("text/") or kind in _TEXTUAL):
        return None
    try:
        return b64decode(part.source.data).decode()
    except ValueError:
        return None


_TEXTUAL = ("application/json", "application/xml", "application/yaml", "application/x-yaml")
