"""JSON patches (RFC 6902) on plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

__all__ = ["PatchError", "apply_patch"]


class PatchError(ValueError):
    """A patch doesn't fit the document."""


def apply_patch(document: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
    """A copy of a document with a patch applied; raises `PatchError` if an operation doesn't fit."""
    holder = {"": deepcopy(document)}
    for each in patch:
        path = ["", *_segments(each.get("path"))]
        match each.get("op"):
            case "add":
                _put(holder, path, deepcopy(each.get("value")), insert=True)
            case "replace":
                _get(holder, path)
                _put(holder, path, deepcopy(each.get("value")), insert=False)
            case "remove":
                _take(holder, path)
            case "move":
                _put(holder, path, _take(holder, ["", *_segments(each.get("from"))]), insert=True)
            case "copy":
                _put(holder, path, deepcopy(_get(holder, ["", *_segments(each.get("from"))])), insert=True)
            case "test":
                if _get(holder, path) != each.get("value"):
                    raise PatchError(f"the value at {each.get('path')!r:.80} is another one")
            case op:
                raise PatchError(f"there is no operation {op!r:.40}")
    return holder[""]


def _segments(path: Any) -> list[str]:
    if path == "":
        return []
    if not isinstance(path, str) or not path.startswith("/"):
        raise PatchError(f"a path begins with /, not {path!r:.80}")
    return [each.replace("~1", "/").replace("~0", "~") for each in path[1:].split("/")]


def _index(parent: list[Any], segment: str, *, end: bool = False) -> int:
    if end and segment == "-":
        return len(parent)
    place = int(segment) if segment.isdecimal() else -1
    if not 0 <= place < len(parent) + end:
        raise PatchError(f"there is no item {segment!r:.40} in a list of {len(parent)}")
    return place


def _get(document: Any, path: Sequence[str]) -> Any:
    for segment in path:
        if isinstance(document, list):
            items = cast(list[Any], document)
            document = items[_index(items, segment)]
        elif isinstance(document, dict) and segment in document:
            document = cast(dict[str, Any], document)[segment]
        else:
            raise PatchError(f"there is no {segment!r:.40} to go into")
    return document


def _put(document: Any, path: Sequence[str], value: Any, *, insert: bool) -> None:
    parent = _get(document, path[:-1])
    if isinstance(parent, dict):
        parent[path[-1]] = value
    elif isinstance(parent, list):
        items = cast(list[Any], parent)
        if insert:
            items.insert(_index(items, path[-1], end=True), value)
        else:
            items[_index(items, path[-1])] = value
    else:
        raise PatchError(f"a {type(parent).__name__} has no {path[-1]!r:.40}")


def _take(document: Any, path: Sequence[str]) -> Any:
    found, parent = _get(document, path), _get(document, path[:-1])
    if isinstance(parent, list):
        items = cast(list[Any], parent)
        del items[_index(items, path[-1])]
    else:
        del parent[path[-1]]
    return found
