"""Tools that return the recorded results of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ToolError
from ..errors.arguments import Checked
from ..tools import Tool
from ..types.base import Data
from ..types.calls import Effect
from ..types.requests import ToolSpec

__all__ = ["Recorded", "RecordedTool"]


class Recorded(Data, metaclass=Checked):
    """A recorded call: its arguments, its result or its error, and whether it asked for approval first."""

    arguments: dict[str, Any]
    result: Any = None
    error: str | None = None
    asks: bool = False


class RecordedTool(Tool):
    """A tool that runs nothing: a call returns the result that was recorded for its arguments.

    Equal calls return their results in order, and the last one from then on. A call that wasn't recorded gives the
    model an error, and raises no exception.
    """

    def __init__(
        self,
        name: str,
        calls: Sequence[Recorded] = (),
        *,
        description: str = "",
        parameters: dict[str, Any] | None = None,
        effect: Effect = "once",
    ) -> None:
        self.name = name
        self.effect = effect
        self.approval = self._asks
        self._spec = ToolSpec(name, description, parameters or {"type": "object", "properties": {}})
        self._calls = calls
        self._left = list(calls)

    @property
    def spec(self) -> ToolSpec:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tool's name, description and schema, as the model sees them."""
        return self._spec

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments unchanged."""
        return arguments

    async def run(self, **arguments: Any) -> Any:
        """The recorded result; raises `ToolError` if an error was recorded, or nothing."""
        found = next((one for one in self._left if one.arguments == arguments and not _is_denied(one)), None)
        if found is not None:
            self._left.remove(found)
        else:
            equal = [one for one in self._calls if one.arguments == arguments and not _is_denied(one)]
            if not equal:
                raise ToolError(f"no call of {self.name} with the arguments {arguments!r:.200} was recorded")
            found = equal[-1]
        if found.error is not None:
            raise ToolError(found.error)
        return found.result

    def _asks(self, arguments: dict[str, Any]) -> bool:
        return any(one.asks and one.arguments == arguments for one in self._calls)


def _is_denied(one: Recorded) -> bool:
    """Whether a call asked, and didn't run with these arguments."""
    return one.asks and one.result is None and one.error is None
