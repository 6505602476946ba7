"""What the tests of context share: a model that reads only what it is shown, and refuses what no vendor takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from loop.helpers import assert_valid_history
from wakeful import FunctionModel, Message, ModelFacts, ModelRequest, Usage
from wakeful.context import Gauge
from wakeful.models import Turn


def tokens_of(request: ModelRequest) -> int:
    """A request's tokens, as the estimate counts."""
    gauge = Gauge()
    rest = gauge.weigh_rest(request.system, request.tools, request.output)
    return rest + sum(gauge.weigh_anew(message) for message in request.messages)


def assert_acceptable(messages: Sequence[Message]) -> None:
    """Fail unless every vendor takes the messages: a user's first, and each call with its result behind it."""
    others = [message for message in messages if message.role != "system"]
    assert others
    assert others[0].role == "user"
    assert_valid_history(messages)


class Reader(FunctionModel):
    """A model with a small window: it says what it can find, and summarises by keeping all facts."""

    def __init__(self, answer: Callable[[ModelRequest], Any], window: int = 2000, name: str = "reader") -> None:
        super().__init__(self._answer, name=name)
        self.facts = ModelFacts(context_window=window, max_output=window // 4)
        self.window = window
        self.requests: list[ModelRequest] = []
        self.summaries: list[ModelRequest] = []
        self._say = answer

    def _answer(self, request: ModelRequest) -> Any:
        assert_acceptable(request.messages)
        assert tokens_of(request) <= self.window * 3 // 4
        if "<conversation>" in request.messages[0].text:
            self.summaries.append(request)
            return Turn(text=" ".join(sorted(facts_in(request))), usage=Usage(100, 10))
        self.requests.append(replace(request, messages=tuple(request.messages)))
        return self._say(request)


def facts_in(request: ModelRequest) -> set[str]:
    """The facts that a request tells: words such as fact-7."""
    return set(re.findall(r"fact-\d+", " ".join(message.text for message in request.messages)))
