"""Helpers of the context tests: a model that validates its requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from loop.helpers import assert_valid_history
from wakeful import FunctionModel, Message, ModelRequest, Usage
from wakeful.context import Gauge
from wakeful.models import ModelFacts, Turn


def tokens_of(request: ModelRequest) -> int:
    """Estimate the tokens of a request."""
    gauge = Gauge()
    rest = gauge.weigh_rest(request.system, request.tools, request.output)
    return rest + sum(gauge.weigh_uncached(message) for message in request.messages)


def assert_acceptable(messages: Sequence[Message]) -> None:
    """Assert that every vendor accepts the messages: a user message first, each call followed by its result."""
    others = [message for message in messages if message.role != "system"]
    assert others
    assert others[0].role == "user"
    assert_valid_history(messages)


class Reader(FunctionModel):
    """A model with a small window. It reports the facts that it sees, and its summaries keep all facts."""

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
    """The facts in a request: words such as fact-7."""
    return set(re.findall(r"fact-\d+", " ".join(message.text for message in request.messages)))
