"""Activities of AG-UI: what a running call shows beside its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from ...types.content import Artifact, ServerTool
from ...types.events import (
    ActivityDelta,
    ActivitySnapshot,
    ServerToolUpdate,
    ToolCallSuspended,
    ToolOutput,
    ToolProgress,
)
from ...ui import ACTIVITY, MEDIA_TYPE

__all__ = ["Activities", "ActivityEvent"]

ActivityEvent = ActivityDelta | ActivitySnapshot | ServerToolUpdate | ToolCallSuspended | ToolOutput | ToolProgress
Tagged = Mapping[str, str]

_encode = msgspec.json.Encoder().encode


class Activities:
    """Encodes what calls show. A change to an activity that began before this stream is left out."""

    def __init__(self) -> None:
        self._shown: set[str] = set()
        # Those whose content isn't an object, as the protocol wants it.
        self._wrapped: set[str] = set()

    def encode(self, event: ActivityEvent, tagged: Tagged) -> bytes:
        """The frames of an event of the run that `tagged` names."""
        match event:
            case ToolOutput():
                return self._output(event, tagged)
            case ToolProgress():
                return self._progress(event, tagged)
            case ActivitySnapshot():
                return self._snapshot(event, tagged)
            case ActivityDelta():
                return self._delta(event, tagged)
            case ServerToolUpdate():
                return self.server_tool(event.tool, tagged)
            case ToolCallSuspended():
                return self.surfaces(event.call_id, event.surfaces, tagged)

    def server_tool(self, tool: ServerTool, tagged: Tagged) -> bytes:
        """A tool of the vendor, as it is by now."""
        content = {"toolName": tool.name, "input": tool.input, "result": tool.result, "status": tool.status}
        return self._show(f"{tool.id}:server-tool", "server-tool", content, tagged)

    def surfaces(self, call_id: str, artifacts: Sequence[Artifact], tagged: Tagged) -> bytes:
        """The surfaces of a call. Those that were sent live are replaced by themselves."""
        found = [one for one in artifacts if one.media_type == MEDIA_TYPE]
        return b"".join([self._show(f"{call_id}:{one.name}", ACTIVITY, one.content, tagged) for one in found])

    def _output(self, event: ToolOutput, tagged: Tagged) -> bytes:
        shown_as = f"{event.call_id}:output"
        if shown_as in self._shown:
            patch = [{"op": "add", "path": "/chunks/-", "value": event.delta}]
            return self._change(shown_as, "tool-output", patch, tagged)
        content = {"toolCallId": event.call_id, "toolName": event.name, "chunks": [event.delta]}
        return self._show(shown_as, "tool-output", content, tagged)

    def _progress(self, event: ToolProgress, tagged: Tagged) -> bytes:
        given = {"fraction": event.fraction, "done": event.done, "total": event.total, "message": event.message}
        content = {name: value for name, value in given.items() if value not in (None, "")}
        content |= {"toolCallId": event.call_id, "toolName": event.name}
        return self._show(f"{event.call_id}:progress", "tool-progress", content, tagged)

    def _snapshot(self, event: ActivitySnapshot, tagged: Tagged) -> bytes:
        shown_as = f"{event.call_id}:{event.activity}"
        content: Any = event.content
        if not isinstance(content, dict):
            self._wrapped.add(shown_as)
            content = {"value": content}
        kind = event.activity.partition(":")[0]
        return self._show(shown_as, kind, cast(dict[str, Any], content), tagged)

    def _delta(self, event: ActivityDelta, tagged: Tagged) -> bytes:
        shown_as = f"{event.call_id}:{event.activity}"
        if shown_as not in self._shown:
            return b""
        patch = event.patch
        if shown_as in self._wrapped:
            patch = [
                {name: f"/value{value}" if name in ("path", "from") else value for name, value in each.items()}
                for each in patch
            ]
        return self._change(shown_as, event.activity.partition(":")[0], patch, tagged)

    def _show(self, shown_as: str, kind: str, content: Mapping[str, Any], tagged: Tagged) -> bytes:
        self._shown.add(shown_as)
        event = {"type": "ACTIVITY_SNAPSHOT", "messageId": shown_as, "activityType": kind, **tagged}
        return b"data: %s\n\n" % _encode({**event, "content": content})

    def _change(self, shown_as: str, kind: str, patch: Sequence[Mapping[str, Any]], tagged: Tagged) -> bytes:
        event = {"type": "ACTIVITY_DELTA", "messageId": shown_as, "activityType": kind, **tagged}
        return b"data: %s\n\n" % _encode({**event, "patch": patch})
