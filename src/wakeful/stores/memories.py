"""Search in memories: the words of a query, the index of a note, and the ranking of stores without an index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from hashlib import sha256

from ..types.records import MemoryNote, words_of

__all__ = ["MAX_SCANNED", "index_text", "is_whole", "owner_of", "rank_notes", "row_number", "search_words"]

MAX_WORDS = 32
# The most notes of one owner that are read where there is no index.
MAX_SCANNED = 10_000

# Endings that are cut off the words of a query, which then match by their beginning.
_ENDINGS = ("ing", "ed", "es", "s")
_SHORTEST = 4
_SHORTEST_BEGINNING = 3


def search_words(query: str) -> list[str]:
    """The beginnings of words that a query looks for."""
    found = dict.fromkeys([_stem(word) for word in words_of(query)])
    return list(found)[:MAX_WORDS]


def is_whole(word: str) -> bool:
    """Whether a short word of a query matches the same word only, and not the beginning of others."""
    return len(word) < _SHORTEST_BEGINNING


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            return word.removesuffix(ending)
    return word


def index_text(note: MemoryNote) -> str:
    """The words of a note, for an index."""
    return " ".join(words_of(f"{note.key} {note.text}"))


def owner_of(tenant: str, prefix: str) -> str:
    """The word by which an index finds the notes of one owner: no other tenant has it."""
    return sha256(f"{tenant}\0{prefix}".encode()).hexdigest()[:32]


def row_number(tenant: str, note_id: str) -> int:
    """The number of a note's row in an index, 63 bits of a hash."""
    return int.from_bytes(sha256(f"{tenant}\0{note_id}".encode()).digest()[:8]) >> 1


def rank_notes(notes: Iterable[MemoryNote], words: Sequence[str], limit: int) -> list[MemoryNote]:
    """The notes with some of the words, the best first: rare words count more, and long notes less."""
    texts = [(note, words_of(f"{note.key} {note.text}")) for note in notes]
    hits = {word: sum(any(_fits(one, word) for one in found) for _, found in texts) for word in words}
    ranked: list[tuple[float, str, MemoryNote]] = []
    for note, found in texts:
        score = 0.0
        for word in words:
            if count := sum(_fits(one, word) for one in found):
                rarity = math.log(1 + (len(texts) - hits[word] + 0.5) / (hits[word] + 0.5))
                score += rarity * count / (count + 0.5 + len(found) / 100)
        if score:
            ranked.append((-score, note.id, note))
    return [note for _, _, note in sorted(ranked, key=lambda one: one[:2])[:limit]]


def _fits(found: str, word: str) -> bool:
    return found == word if is_whole(word) else found.startswith(word)
