"""Server tools of Gemini: switching them on, and reading their parts."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from ...errors import InvalidRequest
from ...types.content import ServerTool
from ...types.requests import FileSearch, ServerToolSpec, WebFetch, WebSearch

__all__ = ["VENDOR", "ServerTools", "sent_parts", "server_tools"]

VENDOR = "google"
_NAMES = {
    "GOOGLE_SEARCH_WEB": "web_search",
    "GOOGLE_SEARCH_IMAGE": "web_search",
    "URL_CONTEXT": "web_fetch",
    "FILE_SEARCH": "file_search",
}
_CALLS, _RESULTS = ("executableCode", "toolCall"), ("codeExecutionResult", "toolResponse")
_FIELDS = {
    "executableCode": "executable_code",
    "codeExecutionResult": "code_execution_result",
    "toolCall": "tool_call",
    "toolResponse": "tool_response",
}


def server_tools(shown: str, specs: Iterable[ServerToolSpec]) -> list[dict[str, Any]]:
    """Build the tools that Google runs. `shown` is the model's name in errors."""
    found: list[dict[str, Any]] = []
    for spec in specs:
        given: dict[str, Any] = {}
        if isinstance(spec, WebSearch | WebFetch):
            lacking = ["max_uses"] if spec.max_uses else []
            lacking += ["allowed_domains"] if spec.allowed_domains else []
            if spec.blocked_domains and isinstance(spec, WebSearch):
                given["exclude_domains"] = list(spec.blocked_domains)
            elif spec.blocked_domains:
                lacking.append("blocked_domains")
            if lacking:
                raise InvalidRequest(
                    f"{shown}: {type(spec).__name__} of Google takes no {' and no '.join(lacking)}; omit it"
                )
            name = "google_search" if isinstance(spec, WebSearch) else "url_context"
        elif isinstance(spec, FileSearch):
            name, given = "file_search", {"file_search_store_names": list(spec.stores)}
            if spec.max_results is not None:
                given["top_k"] = spec.max_results
        else:
            name = "code_execution"
        found.append({name: {**given, **spec.extra}})
    return found


class ServerTools:
    """The server tools of one answer. A result without an id belongs to the last call without one."""

    def __init__(self) -> None:
        self._tools: dict[str, ServerTool] = {}
        self._last = ""

    def add(self, part: Mapping[str, Any], answer: str) -> ServerTool | None:
        """Read a part of a server tool; None for any other part. `answer` is the id of the answer."""
        for name in (*_CALLS, *_RESULTS):
            if (found := part.get(name)) is not None:
                if name in _CALLS:
                    self._last = found.get("id") or f"{answer}/{len(self._tools)}"
                ident = found.get("id") or self._last or f"{answer}/{len(self._tools)}"
                tool = self._tools[ident] = self._read(name, found, part, ident)
                return tool
        return None

    def _read(self, kind: str, found: dict[str, Any], part: Mapping[str, Any], ident: str) -> ServerTool:
        begun = self._tools.get(ident)
        name = "code_execution"
        if kind in ("toolCall", "toolResponse"):
            name = _NAMES.get(found.get("toolType") or "", found.get("toolType") or "tool")
        content = (
            found.get("args") if kind == "toolCall" else found.get("response") if kind == "toolResponse" else None
        )
        if content is None:
            content = {key: value for key, value in found.items() if key != "id"}
        if kind in _CALLS:
            return ServerTool(ident, name, content, None, "running", VENDOR, (dict(part),))
        is_failed = found.get("outcome") in ("OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED")
        status: Literal["done", "failed"] = "failed" if is_failed else "done"
        if begun is None:
            return ServerTool(ident, name, None, content, status, VENDOR, (dict(part),))
        return ServerTool(ident, begun.name, begun.input, content, status, VENDOR, (*begun.raw, dict(part)))

    def end(self) -> Iterable[ServerTool]:
        """The tools whose result the answer doesn't have: they ran, and what came of them is in the text."""
        return [
            ServerTool(tool.id, tool.name, tool.input, None, "done", VENDOR, tool.raw)
            for tool in self._tools.values()
            if not tool.is_over
        ]


def sent_parts(raw: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a server tool in the form that the SDK takes."""
    parts: list[dict[str, Any]] = []
    for one in raw:
        part: dict[str, Any] = {field: one[name] for name, field in _FIELDS.items() if name in one}
        if signature := one.get("thoughtSignature"):
            part["thought_signature"] = base64.b64decode(signature)
        parts.append(part)
    return parts
