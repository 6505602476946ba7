"""Parsing of JSON text as models write it."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, cast

from ...errors import InvalidArguments

__all__ = ["parse_json"]


def parse_json(text: str | bytes) -> Any:
    """Parse JSON text; raises InvalidArguments with the position of the fault."""
    import json

    try:
        body = _unfenced((text.encode() if isinstance(text, str) else text).decode())
        value = json.loads(body, parse_constant=_not_json, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise InvalidArguments(f"$: malformed JSON at {where}: {error.msg[:1].lower()}{error.msg[1:]}") from None
    except UnicodeError:
        raise InvalidArguments("$: malformed JSON: text that is not valid Unicode") from None
    except RecursionError:
        raise InvalidArguments("$: malformed JSON: nested too deeply") from None
    except ValueError:
        raise InvalidArguments("$: malformed JSON: a number that JSON cannot hold") from None
    return value


def _not_json(name: str) -> Any:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    return number if isfinite(number) else _not_json(text)


def _unfenced(text: str) -> str:
    """Replace a Markdown fence by spaces, so that positions stay the same."""
    fence = r"[\s\ufeff]*(```(?:json\b|[\w+-]*(?=[ \t]*\n))?)?"
    opening = cast("re.Match[str]", re.match(fence, text, re.IGNORECASE))
    body = text[opening.end() :].rstrip()
    return re.sub(r"[^\n]", " ", opening[0]) + (body.removesuffix("```") if opening[1] else body)
