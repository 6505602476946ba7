"""The plugin that adds a text to the next request after a call that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, cast, get_args

from ...errors.arguments import Checked, checked
from ...plugins import AfterTool, ContextMessage, Plugin
from ...tools import Tool
from ...types.base import Data
from ..permissions import CallMatcher, PatternError, parse_pattern

__all__ = ["Remind", "Reminders"]

Outcome = Literal["ok", "error", "any"]
Target = Literal["end", "conversation", "session", "system"]

MAX_TEXT = 16 * 1024
MAX_RULES = 500


class Remind(Data, metaclass=Checked):
    """A text for the model after a call that fits.

    - `when`: a call pattern, as permission rules have it: `push(branch = "main")`.
    - `text`: what the next request says.
    - `outcome`: `ok`, `error` (refused calls, too) or `any`.
    - `contains`: a text that the result has, in any case of letters.
    - `cooldown`: the number of steps before the same reminder is shown again.
    - `target`: its place in the request. At the `end` it leaves the prompt cache as it is.
    """

    when: str
    text: str
    outcome: Outcome = "any"
    contains: str = ""
    cooldown: int = 0
    target: Target = "end"


class Reminders(Plugin):
    """Reminds a model of something after certain calls: `Reminders(Remind("push", "Tell the team."))`."""

    name: ClassVar[str] = "reminders"

    @checked
    def __init__(self, *rules: Remind) -> None:
        self._rules = rules
        self._matchers: list[CallMatcher] = []
        self._problems = self._compile(rules)

    def _compile(self, rules: Sequence[Any]) -> list[str]:
        found = [f"it has {len(rules):,} reminders; the limit is {MAX_RULES}"] if len(rules) > MAX_RULES else []
        for number, rule in enumerate(rules, 1):
            if not isinstance(rule, Remind):
                found.append(f"reminder {number} is a Remind(...), not {rule!r:.80}")
                continue
            found += [f"reminder {number}: {problem}" for problem in _rule_problems(rule)]
            try:
                pattern = parse_pattern(str(rule.when))
                if pattern.needs_taint:
                    found.append(
                        f"reminder {number}: when {rule.when!r:.120}: taint is for permission rules alone"
                    )
                self._matchers.append(CallMatcher(pattern))
            except PatternError as error:
                found.append(f"reminder {number}: when {rule.when!r:.120}: {error}")
        return found

    def problems(self, agents: Mapping[str, Mapping[str, Tool]], configs: Mapping[str, Any]) -> Sequence[str]:
        """List the problems of the rules, and rules whose pattern fits no tool."""
        if self._problems:
            return self._problems
        tools = [tool for each in agents.values() for tool in each.values()]
        return [
            f"when {rule.when!r:.120} fits no tool of its agents"
            for rule, matcher in zip(self._rules, self._matchers, strict=True)
            if not matcher.may_match(tools)
        ]

    async def after_tool(self, ctx: AfterTool) -> None:
        """Add the texts of the reminders that fit the call."""
        call, result = ctx.call, ""
        for number, (rule, matcher) in enumerate(zip(self._rules, self._matchers, strict=True)):
            if rule.outcome != "any" and (ctx.outcome == "ok") is not (rule.outcome == "ok"):
                continue
            if not matcher.matches(call, ctx.tool, ctx.run, ctx.principal):
                continue
            if rule.contains:
                result = result or "\n".join([getattr(part, "text", "") for part in ctx.reply.content]).lower()
                if rule.contains.lower() not in result:
                    continue
            ctx.add_context(
                ContextMessage(f"reminder.{number}", rule.text, target=rule.target, cooldown=rule.cooldown)
            )


def _rule_problems(rule: Remind) -> list[str]:
    found: list[str] = []
    text: Any = rule.text
    if not isinstance(text, str) or not 0 < len(text.strip()) <= MAX_TEXT:
        found.append(f"text has 1 to {MAX_TEXT:,} characters, not {text!r:.80}")
    if not isinstance(cast(Any, rule.contains), str):
        found.append(f"contains is a text, not {rule.contains!r:.80}")
    if rule.outcome not in get_args(Outcome):
        found.append(f"outcome is one of {', '.join(get_args(Outcome))}, not {rule.outcome!r:.80}")
    if rule.target not in get_args(Target):
        found.append(f"target is one of {', '.join(get_args(Target))}, not {rule.target!r:.80}")
    if type(rule.cooldown) is not int or rule.cooldown < 0:
        found.append(f"cooldown is a number of steps, 0 or more, not {rule.cooldown!r:.80}")
    return found
