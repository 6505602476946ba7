"""Type variables and forms of generic classes, which `typing` lacks in older Pythons: type checkers know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    from typing_extensions import TypeForm as TypeForm
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)
    # An agent without an output type answers with text.
    Output = TypeVar("Output", default=str, covariant=True)
    RemoteOutput = TypeVar("RemoteOutput", default=str)
    # The output of a run whose agent is named by its id isn't known.
    RunOutput = TypeVar("RunOutput", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")
    Output = TypeVar("Output", covariant=True)
    RemoteOutput = TypeVar("RemoteOutput")
    RunOutput = TypeVar("RunOutput")

    class TypeForm(Generic[Output]):
        """Stands for any type, unions included; needed where a signature is inspected."""


__all__ = ["Deps", "Output", "RemoteOutput", "RunOutput", "TypeForm"]
