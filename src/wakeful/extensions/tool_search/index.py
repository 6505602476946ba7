"""An index of tools: BM25 over names, descriptions, parameter names and the texts of nested schemas."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log
from typing import Any, cast

from ...types.requests import ToolSpec

__all__ = ["ToolIndex", "words_of"]

# BM25's constants: how fast repetitions saturate, and how much long texts are discounted.
K1, B = 1.2, 0.5
NAME_WEIGHT, DESCRIPTION_WEIGHT, SCHEMA_WEIGHT = 3, 2, 1
# A result scores at least this share of the best one.
FLOOR = 0.15
MAX_QUERY = 1000
MAX_DEPTH = 12
MAX_TEXT = 20_000

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_STOP_TEXT = """
a an and any are as at be by can do for from get have how i if in into is it its let me my need of on or our
please so some that the their them then there these this to up us use want was we what when where which who will
with you your
"""
_STOP = frozenset(_STOP_TEXT.split())
_SUFFIXES = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", "e"), ("s", ""))


def words_of(text: str) -> list[str]:
    """The words of a text in lower case: parts of `camelCase` and `snake_case`, no stop words, no inflections."""
    return [_stem(word) for word in map(str.lower, _WORD.findall(text)) if word not in _STOP]


def _stem(word: str) -> str:
    for suffix, ending in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and not word.endswith("ss"):
            word = word[: -len(suffix)] + ending
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]  # planned: plann, plan.
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


class ToolIndex:
    """Finds tools by words. It is made of their specs and holds no more than counts of words."""

    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        self.names: tuple[str, ...] = ()
        self._lower: dict[str, str] = {}
        self._lengths: dict[str, int] = {}
        # The tools that have a word, with the weighted number of times.
        self._postings: dict[str, dict[str, int]] = {}
        for spec in specs:
            self._add(spec)
        self.names = tuple(self._lengths)
        self._average = sum(self._lengths.values()) / max(1, len(self._lengths))

    def _add(self, spec: ToolSpec) -> None:
        counts: Counter[str] = Counter()
        for text, weight in (
            (spec.name.removeprefix("mcp__"), NAME_WEIGHT),
            (spec.description, DESCRIPTION_WEIGHT),
            (" ".join(_schema_texts(spec.parameters)), SCHEMA_WEIGHT),
        ):
            for word in words_of(text[:MAX_TEXT]):
                counts[word] += weight
        self._lengths[spec.name] = counts.total()
        self._lower[spec.name.lower()] = spec.name
        for word, count in counts.items():
            self._postings.setdefault(word, {})[spec.name] = count

    def search(self, query: str, limit: int = 8) -> list[str]:
        """The names of the tools that fit best. A tool that is named in full comes first.

        Nothing is found if the tools have less than half of the query's words: better no tools than wrong ones.
        """
        query = query[:MAX_QUERY]
        exact = [self._lower[word] for word in re.findall(r"[\w-]+", query.lower()) if word in self._lower]
        scores: Counter[str] = Counter()
        wanted = dict.fromkeys(words_of(query))
        known = [word for word in wanted if word in self._postings]
        if 2 * len(known) >= len(wanted):
            for word in known:
                self._score(word, scores)
        ranked = sorted(scores, key=lambda name: (-scores[name], name))
        best = scores[ranked[0]] if ranked else 0.0
        good = [name for name in ranked if scores[name] >= FLOOR * best]
        return list(dict.fromkeys([*exact, *good]))[:limit]

    def _score(self, word: str, scores: Counter[str]) -> None:
        found = self._postings[word]
        rarity = log(1 + (len(self._lengths) - len(found) + 0.5) / (len(found) + 0.5))
        for name, count in found.items():
            length = 1 - B + B * self._lengths[name] / self._average
            scores[name] += cast(Any, rarity * count * (K1 + 1) / (count + K1 * length))


def _schema_texts(schema: Any, depth: int = 0) -> Iterator[str]:
    """The names, descriptions, titles and closed sets of values of a schema, at any depth."""
    if depth > MAX_DEPTH:
        return
    if isinstance(schema, Mapping):
        node = cast(Mapping[str, Any], schema)
        for name in ("title", "description"):
            if isinstance(text := node.get(name), str):
                yield text
        for name in ("properties", "$defs"):
            if isinstance(fields := node.get(name), Mapping):
                for field, below in cast(Mapping[str, Any], fields).items():
                    yield field
                    yield from _schema_texts(below, depth + 1)
        for name in ("items", "additionalProperties", "anyOf", "oneOf", "allOf", "prefixItems"):
            yield from _schema_texts(node.get(name), depth + 1)
        yield from [value for value in cast(Sequence[Any], node.get("enum") or ()) if isinstance(value, str)]
    elif isinstance(schema, list):
        for below in cast(list[Any], schema):
            yield from _schema_texts(below, depth + 1)
