"""How many tokens a message has: by a tokenizer where one is at hand, else by an estimate that learns."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..models import Model
from ..types.content import (
    Audio,
    Base64,
    Content,
    Document,
    Image,
    MediaSource,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
    Unknown,
    Video,
)
from ..types.messages import Message
from ..types.requests import OutputSpec, ToolSpec

__all__ = ["Gauge", "Gauges", "count_tokens", "estimate_text", "offline_encoder"]

CountText = Callable[[str], int]

# What vendors put around a message, a call and a tool.
_PER_MESSAGE, _PER_CALL, _PER_TOOL = 4, 8, 10
_IMAGE = 1600
# Of other media: the tokens of one that is only a URL, the least for one with data, and bytes for a token.
_MEDIA: dict[type[Any], tuple[int, int, int]] = {
    Audio: (2000, 200, 500),
    Video: (10_000, 2000, 1000),
    Document: (5000, 500, 25),
}

_KEPT = 16_384
# Beyond this many characters a tokenizer sees only a piece, and the rest is taken to be like it.
_SAMPLE = 20_000


def estimate_text(text: str) -> int:
    """About how many tokens a text has: four ASCII characters make one, and so do about three bytes of others."""
    size = len(text)
    if text.isascii():
        return (size + 3) // 4
    others = (len(text.encode(errors="replace")) - size) // 2
    return (max(size - others, 0) + 3) // 4 + others


def _estimate_json(value: Any) -> int:
    # Punctuation and short words: more tokens for the same length than prose.
    return (len(msgspec.json.encode(value)) + 2) // 3


def _weigh_media(kind: type[Any], source: MediaSource) -> int:
    if kind is Image:
        return _IMAGE
    remote, least, per_token = _MEDIA[kind]
    if not isinstance(source, Base64):
        return remote
    size = len(source.data) * 3 // 4
    per_token = 3 if source.media_type.startswith("text/") else per_token
    return max(least, size // per_token)


def _weigh_part(part: Content, count: CountText) -> int:
    # Every message of every step comes by here: this is several times faster than matching.
    if type(part) is Text:
        return count(part.text)
    if type(part) is ToolReply:
        return sum([_weigh_part(inner, count) for inner in part.content]) + len(part.name) // 4 + _PER_CALL
    if type(part) is ToolCall:
        arguments = _estimate_json(part.arguments) if part.arguments else 1
        return arguments + len(part.name) // 4 + _PER_CALL
    if isinstance(part, Image | Audio | Video | Document):
        return _weigh_media(type(part), part.source)
    if isinstance(part, Thinking):
        return count(part.text) + estimate_text(part.encrypted or part.signature or "")
    return _estimate_json(part.raw) if isinstance(part, Unknown) else 0


def weigh(message: Message, count: CountText = estimate_text) -> int:
    """The tokens of one message."""
    content = message.content
    if len(content) == 1 and type(content[0]) is Text:
        return count(content[0].text) + _PER_MESSAGE
    return sum([_weigh_part(part, count) for part in content]) + _PER_MESSAGE


def count_tokens(messages: Sequence[Message]) -> int:
    """About how many tokens these messages have; the count of a whole is the sum of its parts' counts."""
    return sum([weigh(message) for message in messages])


class Gauge:
    """What is known of one model's tokens.

    Messages are weighed by a tokenizer or an estimate; what the vendor says a request had gives the `ratio` of its
    count to ours. `refused` is how many of its tokens a request may have after the vendor called one too long.
    """

    __slots__ = ("_count", "_kept", "ratio", "refused")

    def __init__(self, count: CountText = estimate_text) -> None:
        self._count = count
        self._kept: dict[str, int] = {}
        self.ratio = 1.0
        self.refused: int | None = None

    def weigh(self, message: Message) -> int:
        """The tokens of a message of a thread, counted once."""
        kept = self._kept
        if (known := kept.get(message.id)) is not None:
            return known
        if len(kept) >= _KEPT:
            del kept[next(iter(kept))]
        weight = kept[message.id] = weigh(message, self._count)
        return weight

    def weigh_anew(self, message: Message) -> int:
        """The tokens of a message whose id another one has, or will never be seen again."""
        return weigh(message, self._count)

    def weigh_rest(self, system: str, tools: Sequence[ToolSpec], output: OutputSpec | None) -> int:
        """The tokens of a request besides its messages."""
        found = self._count(system) + _PER_MESSAGE if system else 0
        for tool in tools:
            found += self._count(tool.name + tool.description) + _estimate_json(tool.parameters) + _PER_TOOL
        return found if output is None else found + _estimate_json(output.schema) + _PER_TOOL

    def scaled(self, weight: int) -> int:
        """Our count of tokens in the vendor's terms."""
        return weight if self.ratio == 1.0 else int(weight * self.ratio) + 1

    def unscaled(self, tokens: int) -> int:
        """The vendor's count of tokens in our terms."""
        return tokens if self.ratio == 1.0 else int(tokens / self.ratio)

    def learn(self, weight: int, tokens: int) -> None:
        """The vendor counted so many tokens where we counted `weight`."""
        if weight < 200 or tokens <= 0:
            return  # Too little to tell: what a vendor puts around any request would weigh too much.
        seen = min(max(tokens / weight, 0.4), 4.0)
        self.ratio = seen if self.ratio == 1.0 else self.ratio * 0.7 + seen * 0.3

    def refuse(self, weight: int, said: str) -> None:
        """The vendor called a request of this weight too long; perhaps it `said` how long one may be."""
        tokens = self.scaled(weight)
        limit = limit_in(said)
        target = tokens * 6 // 10 if limit is None else min(limit * 9 // 10, tokens * 8 // 10)
        self.refused = target if self.refused is None else min(self.refused, target)


def limit_in(said: str) -> int | None:
    """How long a request may be, where a vendor's refusal names that: of the counts in it, the smallest."""
    import re  # Only after a refusal.

    counts = [int(number.replace(",", "")) for number in re.findall(r"\b\d[\d,]{3,}\b", said)]
    return min(counts) if len(counts) > 1 and "token" in said.lower() else None


class Gauges:
    """A gauge for each model that a runtime has asked, by the model's name."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[str, Gauge] = {}

    def of(self, model: Model) -> Gauge:
        """The model's gauge."""
        name = model.name
        found = self.known.get(name)
        if found is None:
            found = self.known[name] = Gauge(offline_encoder(name) or estimate_text)
        return found


# -- a tokenizer, where it is installed and has its data ------------------------------------------------------

# tiktoken fetches an encoding's data when it isn't cached, which must not happen while a run waits for it: the
# files it caches them in, and the digests it expects.
_CACHED = {
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}


def offline_encoder(model: str) -> CountText | None:
    """A tokenizer for the model, if it is OpenAI's and tiktoken is installed with its data; nothing is fetched."""
    vendor, _, name = model.partition(":")
    if vendor != "openai" or not name:
        return None
    try:
        import tiktoken

        encoding = tiktoken.encoding_name_for_model(name)
    except (ImportError, KeyError):
        return None
    if not _is_cached(encoding):
        return None
    encode = tiktoken.get_encoding(encoding).encode_ordinary
    return lambda text: _sampled(text, encode)


def _is_cached(encoding: str) -> bool:
    from hashlib import sha256
    from tempfile import gettempdir

    if encoding not in _CACHED:
        return False
    file, expected = _CACHED[encoding]
    default = os.path.join(gettempdir(), "data-gym-cache")
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", default))
    try:
        with open(os.path.join(folder, file), "rb") as cached:
            return bool(folder) and sha256(cached.read()).hexdigest() == expected
    except OSError:
        return False


def _sampled(text: str, encode: Callable[[str], Sequence[int]]) -> int:
    if len(text) <= _SAMPLE:
        return len(encode(text))
    return len(encode(text[:_SAMPLE])) * len(text) // _SAMPLE + 1
