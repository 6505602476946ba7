"""Call patterns: the syntax tree, the parser and the canonical text.

pattern    = selector ["(" [fields] ")"] ["when" facts] ["unless" ["(" fields ")"] [facts]]
selector   = name | "effect:" word | "hint:" word | "server:" word       `*` in a name is any text
fields     = condition {"," condition} ["," "only"] | "only" | "*"       about the arguments
facts      = fact {"," fact};  fact = condition | "tainted" | "not" "tainted"    about the run
condition  = path operator value
path       = segment {"." segment};  segment = (word | "*" | string) {"[" (number | "*") "]"}
operator   = "=" | "!=" | "~" | "!~" | "=~" | "!=~" | "<" | "<=" | ">" | ">="
value      = string | number | "true" | "false" | "null"
string     = "..." with the escapes of JSON, or '...' without escapes
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Literal, cast

from ...types.base import Data

__all__ = [
    "Clause",
    "Condition",
    "Operator",
    "Pattern",
    "PatternError",
    "Scalar",
    "Step",
    "glob_pieces",
    "parse_pattern",
    "quote_value",
    "write_path",
]

MAX_TEXT = 4096
MAX_DEPTH = 16

Operator = Literal["=", "!=", "~", "!~", "=~", "!=~", "<", "<=", ">", ">="]
Scalar = str | int | float | bool | None
Kind = Literal["name", "effect", "hint", "server"]

# Roots of the facts about a run.
FACTS = ("agent", "depth", "origin", "principal")


class PatternError(ValueError):
    """A call pattern that can't be parsed: what is wrong, and where."""


class Step(Data):
    """One step of a path: a field, a position in a list, or every entry (`name` and `index` are None)."""

    name: str | None = None
    index: int | None = None


class Condition(Data):
    """A test of the values at a path."""

    path: tuple[Step, ...]
    operator: Operator
    value: Scalar

    def __str__(self) -> str:
        return f"{write_path(self.path)} {self.operator} {quote_value(self.value)}"


class Clause(Data):
    """Conditions on the arguments (`fields`) and on the run (`facts`), which all have to hold.

    `only` says that no other argument may be given. `tainted` is the required taint of the run, or None.
    """

    fields: tuple[Condition, ...] = ()
    only: bool = False
    facts: tuple[Condition, ...] = ()
    tainted: bool | None = None

    @property
    def written_fields(self) -> str:
        """The part about the arguments, in parentheses; empty if there is none."""
        parts = [*map(str, self.fields), *(["only"] if self.only else [])]
        return f"({', '.join(parts)})" if parts else ""

    @property
    def written_facts(self) -> str:
        """The part about the run."""
        taint = [] if self.tainted is None else ["tainted" if self.tainted else "not tainted"]
        return ", ".join([*map(str, self.facts), *taint])

    @property
    def is_empty(self) -> bool:
        """Whether the clause holds for every call."""
        return not self.fields and not self.only and not self.facts and self.tainted is None


class Pattern(Data):
    """A set of calls: those that the selector and the clause admit, without those of the exception."""

    kind: Kind
    selector: str
    clause: Clause = Clause()
    exception: Clause | None = None

    def __str__(self) -> str:
        text = self.selector if self.kind == "name" else f"{self.kind}:{self.selector}"
        text += self.clause.written_fields
        if facts := self.clause.written_facts:
            text += f" when {facts}"
        if self.exception is not None:
            parts = [self.exception.written_fields, self.exception.written_facts]
            text += f" unless {' '.join([part for part in parts if part])}"
        return text

    @property
    def is_unconditional(self) -> bool:
        """Whether every call of the selected tools matches."""
        return self.clause.is_empty and self.exception is None

    @property
    def needs_taint(self) -> bool:
        """Whether a condition is about the taint of the run."""
        return any(clause is not None and clause.tainted is not None for clause in (self.clause, self.exception))


# -- writing -------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[A-Za-z0-9_-]+\Z")


def quote_value(value: Scalar) -> str:
    """A value as it is written in a pattern."""
    return json.dumps(value, ensure_ascii=False)


def write_path(path: tuple[Step, ...]) -> str:
    """A path as it is written in a pattern."""
    text = ""
    for number, step in enumerate(path):
        if step.name is None:
            entry = "*" if step.index is None else str(step.index)
            text += f"[{entry}]" if number else entry
        else:
            name = step.name if _WORD.match(step.name) else json.dumps(step.name, ensure_ascii=False)
            text += f".{name}" if number else name
    return text


def glob_pieces(text: str) -> tuple[str, ...]:
    """The literal texts between the `*` of a glob; a backslash takes the meaning from the character after it."""
    pieces, current, characters = list[str](), "", iter(text)
    for character in characters:
        if character == "\\":
            literal = next(characters, None)
            if literal is None:
                raise PatternError(f"the glob {text!r:.80} ends in a backslash, which needs a character after it")
            current += literal
        elif character == "*":
            pieces.append(current)
            current = ""
        else:
            current += character
    return (*pieces, current)


# -- parsing -------------------------------------------------------------------------------------------------

_SPACE = re.compile(r"\s*")
_SELECTOR = re.compile(r"[A-Za-z0-9_*-]+")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'', re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_OPERATOR = re.compile(r"!=~|!=|!~|=~|<=|>=|=|~|<|>")
_LITERALS: dict[str, Scalar] = {"true": True, "false": False, "null": None}
_ORDERED = ("<", "<=", ">", ">=")
_TEXTUAL = ("~", "!~", "=~", "!=~")


@lru_cache(maxsize=4096)
def parse_pattern(text: str) -> Pattern:
    """Parse a call pattern; raises `PatternError`."""
    if len(text) > MAX_TEXT:
        raise PatternError(f"it has {len(text):,} characters; the limit is {MAX_TEXT:,}")
    return _Parser(text).pattern()


class _Parser:
    """A recursive-descent parser over one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._skip()

    # -- tokens

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = self._at if found is None else found.end()

    def _take(self, token: re.Pattern[str]) -> str | None:
        found = token.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        self._skip()
        return found[0]

    def _accept(self, symbol: str) -> bool:
        if not self._text.startswith(symbol, self._at):
            return False
        self._at += len(symbol)
        self._skip()
        return True

    def _accept_word(self, word: str) -> bool:
        found = _NAME.match(self._text, self._at)
        if found is None or found[0] != word:
            return False
        self._at = found.end()
        self._skip()
        return True

    def _wrong(self, expected: str) -> PatternError:
        rest = self._text[self._at :]
        found = f"{rest:.30}" if rest else "the end"
        return PatternError(f"at character {self._at + 1}: expected {expected}, found {found!r}")

    # -- grammar

    def pattern(self) -> Pattern:
        kind, selector = self._selector()
        fields, only = self._fields() if self._accept("(") else ((), False)
        facts, tainted = self._facts() if self._accept_word("when") else ((), None)
        exception = self._exception() if self._accept_word("unless") else None
        if self._at < len(self._text):
            raise self._wrong("'(', 'when', 'unless' or the end")
        return Pattern(kind, selector, Clause(fields, only, facts, tainted), exception)

    def _selector(self) -> tuple[Kind, str]:
        start = self._at
        name = self._take(_SELECTOR)
        if name is None:
            raise self._wrong("the name of a tool, effect:, hint: or server:")
        if not self._accept(":"):
            return "name", name
        if name not in ("effect", "hint", "server"):
            self._at = start
            raise self._wrong("effect:, hint: or server: before a colon")
        word = self._take(_NAME)
        if word is None:
            raise self._wrong(f"a word after {name}:")
        if name == "effect" and word not in ("pure", "idempotent", "reconcile", "once"):
            raise PatternError(f"no effect {word!r}; the effects are pure, idempotent, reconcile and once")
        return cast(Kind, name), word

    def _fields(self) -> tuple[tuple[Condition, ...], bool]:
        """The conditions up to the closing parenthesis."""
        found, only = list[Condition](), False
        if self._accept("*"):
            self._close()
            return (), False
        while not self._accept(")"):
            if only:
                raise self._wrong("')' after 'only', which comes last")
            if self._is_only():
                only = self._accept_word("only")
            else:
                found.append(self._condition(self._path()))
            if not self._accept(","):
                self._close()
                break
        if not found and not only:
            raise PatternError("the parentheses are empty; leave them out, or name a condition")
        return tuple(found), only

    def _is_only(self) -> bool:
        found = _NAME.match(self._text, self._at)
        if found is None or found[0] != "only":
            return False
        rest = self._text[found.end() :].lstrip()
        return rest[:1] in (")", ",")

    def _close(self) -> None:
        if not self._accept(")"):
            raise self._wrong("',' or ')'")

    def _facts(self) -> tuple[tuple[Condition, ...], bool | None]:
        found, tainted = list[Condition](), None
        while True:
            if self._accept_word("tainted"):
                tainted = True
            elif self._accept_word("not"):
                if not self._accept_word("tainted"):
                    raise self._wrong("'tainted' after 'not'")
                tainted = False
            else:
                found.append(self._fact())
            if not self._accept(","):
                return tuple(found), tainted

    def _fact(self) -> Condition:
        start = self._at
        path = self._path()
        if path[0].name not in FACTS:
            self._at = start
            raise self._wrong(f"a fact of the run: {', '.join(FACTS)} or tainted")
        return self._condition(path)

    def _exception(self) -> Clause:
        fields, only = self._fields() if self._accept("(") else ((), False)
        if fields or only:
            facts, tainted = self._facts() if self._at < len(self._text) else ((), None)
        else:
            facts, tainted = self._facts()
        return Clause(fields, only, facts, tainted)

    def _path(self) -> tuple[Step, ...]:
        steps = list[Step]()
        while True:
            steps.append(self._segment())
            while self._accept("["):
                steps.append(self._index())
            if not self._accept("."):
                break
        if len(steps) > MAX_DEPTH:
            raise PatternError(f"the path {write_path(tuple(steps)):.80} has {len(steps)} steps, over {MAX_DEPTH}")
        return tuple(steps)

    def _segment(self) -> Step:
        if self._accept("*"):
            return Step()
        name = self._take(_NAME)
        if name is None and (string := self._take(_STRING)) is not None:
            name = self._unquote(string)
        if name is None:
            raise self._wrong("a field's name, '*' or a quoted name")
        return Step(name)

    def _index(self) -> Step:
        step = Step()
        if not self._accept("*"):
            number = self._take(re.compile(r"\d{1,9}"))
            if number is None:
                raise self._wrong("a position or '*' in brackets")
            step = Step(None, int(number))
        if not self._accept("]"):
            raise self._wrong("']'")
        return step

    def _condition(self, path: tuple[Step, ...]) -> Condition:
        operator = cast(Operator | None, self._take(_OPERATOR))
        if operator is None:
            raise self._wrong(f"an operator after {write_path(path)}: = != ~ !~ =~ !=~ < <= > >=")
        value = self._value()
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if operator in _ORDERED and not is_number:
            raise PatternError(f"{write_path(path)} {operator} takes a number, not {quote_value(value)}")
        if operator in _TEXTUAL and not isinstance(value, str):
            raise PatternError(f"{write_path(path)} {operator} takes a string, not {quote_value(value)}")
        if operator in ("~", "!~"):
            glob_pieces(str(value))
        elif operator in ("=~", "!=~"):
            self._check_regex(str(value))
        return Condition(path, operator, value)

    def _check_regex(self, text: str) -> None:
        try:
            re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise PatternError(f"the regular expression {text!r:.80} is invalid: {error}") from error

    def _value(self) -> Scalar:
        string = self._take(_STRING)
        if string is not None:
            return self._unquote(string)
        number = self._take(_NUMBER)
        if number is not None:
            value = json.loads(number)
            if value in (float("inf"), float("-inf")):
                raise PatternError(f"the number {number} is too large")
            return value
        word = self._take(_NAME)
        if word is not None and word in _LITERALS:
            return _LITERALS[word]
        if word is not None:
            raise PatternError(f'a value is a quoted string, a number, true, false or null; write "{word}"')
        raise self._wrong("a value: a quoted string, a number, true, false or null")

    def _unquote(self, text: str) -> str:
        try:
            value = text[1:-1] if text.startswith("'") else json.loads(text)
            value.encode()
            return value
        except ValueError as error:
            raise PatternError(
                f"the string {text:.80} is not valid: {error}; '...' takes every character as it is"
            ) from error
