"""Guardrails: functions that judge input before a model reads it, and answers before anybody does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar

from msgspec.structs import force_setattr

from ..errors.arguments import Checked
from ..state import StateKey
from ..types.base import Data
from ..types.content import Content
from ..types.events import StopReason
from ..types.messages import Message, parse_input, user_message
from ..types.runs import Usage
from .contexts import Block, HookContext, Suspend

__all__ = ["Guardrail", "HeldKey", "HeldMessage", "JudgedInput", "Rewrite", "Verdict"]


class Rewrite(Data, metaclass=Checked):
    """Replaces the whole content of a message: by a text, or by content parts.

    Of an answer's tool calls, those that are among the parts are carried out.
    """

    content: str | Sequence[Content]

    def __post_init__(self) -> None:
        force_setattr(self, "content", user_message(parse_input(self.content)).content)

    @property
    def parts(self) -> tuple[Content, ...]:
        """The content parts."""
        return self.content  # pyright: ignore[reportReturnType]


Verdict = Block | Rewrite | Suspend | None

Check = Callable[[Message, HookContext[Any]], Verdict | Awaitable[Verdict]]


class Guardrail(Data, metaclass=Checked):
    """A guardrail of an agent: functions of a message and a `HookContext`, sync or async.

    They return None to let the message pass, `Block(reason)` to end the run, `Rewrite(content)`, or
    `Suspend(question)` to let a person decide. `input` judges each user message before the first model request
    that shows it. `output` judges each whole answer before it is committed: nothing of it is streamed, and none of
    its calls starts before.
    """

    name: str
    input: Check | None = None
    output: Check | None = None


class JudgedInput(StateKey[dict[str, str], tuple[str, str]]):
    """The id of the newest message that the guardrails of each agent have judged."""

    name: ClassVar[str] = "__runtime_guardrails"
    scope = "thread"
    default: ClassVar[Any] = {}

    def apply(self, value: dict[str, str], update: tuple[str, str]) -> dict[str, str]:
        """Set the message of one agent."""
        agent_id, message_id = update
        return {**value, agent_id: message_id}


class HeldMessage(Data, omit_defaults=True):
    """A message that waits for the answer to a guardrail's question.

    `content` is what earlier guardrails left of it; `guardrail` and `place` say which one asked. The fields from
    `stop` on are those of an answer's inference.
    """

    message_id: str
    content: tuple[Content, ...]
    guardrail: str
    place: int
    is_answer: bool = False
    stop: StopReason = "unknown"
    is_truncated: bool = False
    usage: Usage = Usage()
    offered: tuple[str, ...] = ()
    problems: dict[str, str] = {}


class HeldKey(StateKey[HeldMessage | None, HeldMessage | None]):
    """The message of a run about which a guardrail has asked."""

    name: ClassVar[str] = "__runtime_held"
