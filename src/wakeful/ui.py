"""Surfaces: typed user interfaces that a tool shows, as messages of A2UI 0.8.

from wakeful import ui

ctx.ui(
    ui.Surface(
        "order",
        root="card",
        components={
            "card": ui.Card("rows"),
            "rows": ui.Column(["title", "pay"]),
            "title": ui.Text(ui.Bound("/title"), hint="h2"),
            "pay": ui.Button("label", action="pay", context={"order": "A7"}),
            "label": ui.Text("Pay"),
        },
        data={"title": "Order A7"},
    )
)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

from .errors import InvalidInput
from .errors.arguments import Checked
from .types.base import Data
from .types.content import Artifact

__all__ = [
    "ACTIVITY",
    "MEDIA_TYPE",
    "Bound",
    "Button",
    "Card",
    "CheckBox",
    "Column",
    "Component",
    "DateTimeInput",
    "Divider",
    "Icon",
    "Image",
    "List",
    "Modal",
    "MultipleChoice",
    "Row",
    "Slider",
    "Surface",
    "Tabs",
    "Template",
    "Text",
    "TextField",
    "Video",
]

ACTIVITY = "a2ui-surface"
"""The kind of activity that a surface is, as AG-UI front ends know it."""
MEDIA_TYPE = "application/vnd.a2ui+json"
"""The media type of the artifact by which a surface stays with its call's result."""


class Bound(Data, metaclass=Checked):
    """A value of the data model, by its path: absolute (`/order/title`), or within a template's item (`title`)."""

    path: str


Value = str | int | float | bool | Sequence[str] | Bound
Axis = Literal["horizontal", "vertical"]


class Template(Data, metaclass=Checked):
    """Children made of a list in the data model: the component once for each item at the path `data`."""

    component: str
    data: str


Children = Sequence[str] | Template


class Component(Data):
    """Base of the components. `values` are the fields that are text, numbers or bound values, with A2UI's names;
    `one` and `many` are those that name other components."""

    values: ClassVar[Mapping[str, str]] = {}
    plain: ClassVar[Mapping[str, str]] = {}
    one: ClassVar[Mapping[str, str]] = {}
    many: ClassVar[Mapping[str, str]] = {}

    def children(self) -> Iterator[str]:
        """The ids of the components inside."""
        for name in self.one:
            yield getattr(self, name)
        for name in self.many:
            given = getattr(self, name)
            yield from [given.component] if isinstance(given, Template) else given

    def bound(self) -> Iterator[str]:
        """The paths of the data model that it shows."""
        for name in self.values:
            if isinstance(given := getattr(self, name), Bound):
                yield given.path
        for name in self.many:
            if isinstance(given := getattr(self, name), Template):
                yield given.data

    def to_json(self) -> dict[str, Any]:
        """The component's properties in A2UI's form."""
        found: dict[str, Any] = {}
        for name, known_as in self.values.items():
            if (given := getattr(self, name)) is not None:
                found[known_as] = _value(given)
        for name, known_as in self.plain.items():
            if (given := getattr(self, name)) is not None:
                found[known_as] = given
        for name, known_as in self.one.items():
            found[known_as] = getattr(self, name)
        for name, known_as in self.many.items():
            given = getattr(self, name)
            found[known_as] = (
                {"template": {"componentId": given.component, "dataBinding": given.data}}
                if isinstance(given, Template)
                else {"explicitList": [*given]}
            )
        return found


class Text(Component, metaclass=Checked):
    """A text; `hint` is `h1` to `h5`, `caption` or `body`."""

    text: Value
    hint: str | None = None

    values = {"text": "text"}
    plain = {"hint": "usageHint"}


class Image(Component, metaclass=Checked):
    """A picture by its URL."""

    url: Value
    hint: str | None = None

    values = {"url": "url"}
    plain = {"hint": "usageHint"}


class Icon(Component, metaclass=Checked):
    """An icon by its name."""

    icon: Value

    values = {"icon": "name"}


class Video(Component, metaclass=Checked):
    """A video by its URL."""

    url: Value

    values = {"url": "url"}


class Divider(Component, metaclass=Checked):
    """A line."""

    axis: Axis = "horizontal"

    plain = {"axis": "axis"}


class Row(Component, metaclass=Checked):
    """Components beside each other."""

    content: Children
    distribution: str | None = None
    alignment: str | None = None

    many = {"content": "children"}
    plain = {"distribution": "distribution", "alignment": "alignment"}


class Column(Component, metaclass=Checked):
    """Components below each other."""

    content: Children
    distribution: str | None = None
    alignment: str | None = None

    many = {"content": "children"}
    plain = {"distribution": "distribution", "alignment": "alignment"}


class List(Component, metaclass=Checked):
    """A list that scrolls."""

    content: Children
    direction: Axis = "vertical"
    alignment: str | None = None

    many = {"content": "children"}
    plain = {"direction": "direction", "alignment": "alignment"}


class Card(Component, metaclass=Checked):
    """A frame around one component."""

    child: str

    one = {"child": "child"}


class Tabs(Component, metaclass=Checked):
    """Components of which one is shown, by titles."""

    items: Mapping[str, str]

    def children(self) -> Iterator[str]:
        """The ids of the components inside."""
        return iter(self.items.values())

    def to_json(self) -> dict[str, Any]:
        """The component's properties in A2UI's form."""
        return {"tabItems": [{"title": _value(title), "child": child} for title, child in self.items.items()]}


class Modal(Component, metaclass=Checked):
    """A component that opens another one over the surface."""

    opener: str
    content: str

    one = {"opener": "entryPointChild", "content": "contentChild"}


class Button(Component, metaclass=Checked):
    """A button around a component. It sends the `action` with its `context` to the application."""

    child: str
    action: str
    context: Mapping[str, Value] = {}
    primary: bool | None = None

    one = {"child": "child"}
    plain = {"primary": "primary"}

    def bound(self) -> Iterator[str]:
        """The paths of the data model that its action sends."""
        return (value.path for value in self.context.values() if isinstance(value, Bound))

    def to_json(self) -> dict[str, Any]:
        """The component's properties in A2UI's form."""
        context = [{"key": key, "value": _value(value)} for key, value in self.context.items()]
        return {**super().to_json(), "action": {"name": self.action, "context": context}}


class CheckBox(Component, metaclass=Checked):
    """A box to check."""

    label: Value
    value: Value

    values = {"label": "label", "value": "value"}


class TextField(Component, metaclass=Checked):
    """A field for a text; `kind` is `shortText`, `longText`, `number`, `date` or `obscured`."""

    label: Value
    text: Value | None = None
    kind: str | None = None
    pattern: str | None = None

    values = {"label": "label", "text": "text"}
    plain = {"kind": "textFieldType", "pattern": "validationRegexp"}


class DateTimeInput(Component, metaclass=Checked):
    """A field for a date, a time or both."""

    value: Value
    date: bool = True
    time: bool = False

    values = {"value": "value"}
    plain = {"date": "enableDate", "time": "enableTime"}


class MultipleChoice(Component, metaclass=Checked):
    """Options to choose from, by their labels."""

    selections: Value
    options: Mapping[str, str]
    most: int | None = None

    values = {"selections": "selections"}
    plain = {"most": "maxAllowedSelections"}

    def to_json(self) -> dict[str, Any]:
        """The component's properties in A2UI's form."""
        options = [{"label": _value(label), "value": value} for label, value in self.options.items()]
        return {**super().to_json(), "options": options}


class Slider(Component, metaclass=Checked):
    """A slider for a number."""

    value: Value
    least: float | None = None
    most: float | None = None

    values = {"value": "value"}
    plain = {"least": "minValue", "most": "maxValue"}


class Surface(Data, metaclass=Checked):
    """A user interface: components by their ids, the one at the root, and the data that they show.

    Raises `InvalidInput` if a component names one that is missing, contains itself, or shows data that is missing.
    """

    id: str
    root: str
    components: Mapping[str, Component]
    data: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        if problems := [*self._problems()]:
            raise InvalidInput(f"surface {self.id!r:.80}: {'; '.join(problems)}")

    def _problems(self) -> Iterator[str]:
        if not self.id or self.root not in self.components:
            yield f"its root {self.root!r:.80} is none of its components, or it has no id"
            return
        for name, component in self.components.items():
            if not isinstance(cast(Any, component), Component):
                yield f"{name!r:.80} is no component of wakeful.ui, but {component!r:.80}"
                return
            for child in component.children():
                if child not in self.components:
                    yield f"{name!r:.80} contains {child!r:.80}, which isn't there"
                    return
            for path in component.bound():
                if path.startswith("/") and not _has(self.data, path):
                    yield f"{name!r:.80} shows {path!r:.80}, which isn't in the data"
        if (loop := self._loop()) is not None:
            yield f"{loop!r:.80} contains itself"

    def _loop(self) -> str | None:
        """A component that is inside of itself."""
        done: set[str] = set()
        above: list[str] = []
        inside: set[str] = set()
        todo: list[tuple[str, bool]] = [(name, False) for name in self.components]
        while todo:
            name, is_left = todo.pop()
            if is_left:
                inside.discard(above.pop())
                done.add(name)
            elif name in inside:
                return name
            elif name not in done:
                above.append(name)
                inside.add(name)
                todo.append((name, True))
                todo += [(child, False) for child in self.components[name].children()]
        return None

    def to_artifact(self) -> Artifact:
        """The artifact by which the surface stays with its call."""
        content = {"surfaceId": self.id, "operations": self.to_messages()}
        return Artifact(content, self.id, f"{ACTIVITY}:{self.id}", MEDIA_TYPE)

    def to_messages(self) -> list[dict[str, Any]]:
        """The messages of A2UI that show the surface."""
        components = [
            {"id": name, "component": {type(component).__name__: component.to_json()}}
            for name, component in self.components.items()
        ]
        found: list[dict[str, Any]] = [{"surfaceUpdate": {"surfaceId": self.id, "components": components}}]
        if self.data:
            contents = [_entry(key, value) for key, value in self.data.items()]
            found.append({"dataModelUpdate": {"surfaceId": self.id, "contents": contents}})
        return [*found, {"beginRendering": {"surfaceId": self.id, "root": self.root}}]


def _value(given: Any) -> dict[str, Any]:
    """A value in A2UI's form."""
    match given:
        case Bound(path):
            return {"path": path}
        case bool():
            return {"literalBoolean": given}
        case str():
            return {"literalString": given}
        case int() | float():
            return {"literalNumber": given}
        case _:
            return {"literalArray": [*given]}


def _entry(key: str, value: Any) -> dict[str, Any]:
    """An entry of the data model in A2UI's form: lists are maps of their positions."""
    match value:
        case bool():
            return {"key": key, "valueBoolean": value}
        case str():
            return {"key": key, "valueString": value}
        case int() | float():
            return {"key": key, "valueNumber": value}
        case Mapping():
            inner = cast(Mapping[str, Any], value)
            return {"key": key, "valueMap": [_entry(name, each) for name, each in inner.items()]}
        case list() | tuple():
            items = cast(Sequence[Any], value)
            return {"key": key, "valueMap": [_entry(str(place), each) for place, each in enumerate(items)]}
        case _:
            raise InvalidInput(
                f"the data at {key!r:.80} is no text, number, boolean, mapping or list: {value!r:.80}"
            )


def _has(data: Any, path: str) -> bool:
    """Whether the data has a value at an absolute path."""
    for segment in path.split("/")[1:]:
        if isinstance(data, Mapping) and segment in data:
            data = cast(Mapping[str, Any], data)[segment]
        elif isinstance(data, list | tuple) and segment.isdecimal() and int(segment) < len(cast(Any, data)):
            data = cast(Sequence[Any], data)[int(segment)]
        else:
            return False
    return True
