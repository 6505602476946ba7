"""Token counts of messages: by a tokenizer if available, else by an estimate that is calibrated."""

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
    ServerTool,
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

# Tokens that vendors add to a message, a call and a tool.
_PER_MESSAGE, _PER_CALL, _PER_TOOL = 4, 8, 10
_IMAGE = 1600
# Other media: tokens of a URL, minimum for inline data, bytes for one token.
_MEDIA: dict[type[Any], tuple[int, int, int]] = {
    Audio: (2000, 200, 500),
    Video: (10_000, 2000, 1000),
    Document: (5000, 500, 25),
}

_CACHE_SIZE, _TOOLS_SIZE = 16_384, 256
# Longer texts are extrapolated from a sample of this many characters.
_SAMPLE = 20_000


def estimate_text(text: str) -> int:
    """Estimate the tokens of a text: one for four ASCII characters or about three bytes of others."""
    size = len(text)
    if text.isascii():
        return (size + 3) // 4
    others = (len(text.encode(errors="replace")) - size) // 2
    return (max(size - others, 0) + 3) // 4 + others


def _estimate_json(value: Any) -> int:
    # Punctuation and short words take more tokens than prose of the same length.
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
    # On the path of every message of every step: type checks are several times faster than `match`.
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
    # Server tools are sent back to their vendor; citations are not, or cost little.
    return _estimate_json(part.raw) if isinstance(part, Unknown | ServerTool) else 0


def weigh(message: Message, count: CountText = estimate_text) -> int:
    """Count the tokens of one message."""
    content = message.content
    if len(content) == 1 and type(content[0]) is Text:
        return count(content[0].text) + _PER_MESSAGE
    return sum([_weigh_part(part, count) for part in content]) + _PER_MESSAGE


def count_tokens(messages: Sequence[Message]) -> int:
    """Estimate the tokens of messages; the sum of the estimates of each."""
    return sum([weigh(message) for message in messages])


class Gauge:
    """Counts tokens for one model, in two units.

    A weight is our own count, by a tokenizer or an estimate. `ratio` is the vendor's count divided by ours,
    learned from reported usage. `refused` is the token limit learned from a request that the vendor rejected as
    too long.
    """

    __slots__ = ("_cache", "_count", "_tools", "ratio", "refused")

    def __init__(self, count: CountText = estimate_text) -> None:
        self._count = count
        self._cache: dict[str, int] = {}
        # Weights of the tools of agents, by identity: an agent's tuple is the same in every request.
        self._tools: dict[int, tuple[Sequence[ToolSpec], int]] = {}
        self.ratio = 1.0
        self.refused: int | None = None

    def weigh(self, message: Message) -> int:
        """The weight of a message in a log, cached by its id."""
        cache = self._cache
        if (known := cache.get(message.id)) is not None:
            return known
        if len(cache) >= _CACHE_SIZE:
            del cache[next(iter(cache))]
        weight = cache[message.id] = weigh(message, self._count)
        return weight

    def weigh_uncached(self, message: Message) -> int:
        """The weight of a message outside the log, not cached."""
        return weigh(message, self._count)

    def weigh_rest(self, system: str, tools: Sequence[ToolSpec], output: OutputSpec | None) -> int:
        """The weight of a request beside its messages."""
        found = self._count(system) + _PER_MESSAGE if system else 0
        found += self._weigh_tools(tools) if tools else 0
        return found if output is None else found + _estimate_json(output.schema) + _PER_TOOL

    def _weigh_tools(self, tools: Sequence[ToolSpec]) -> int:
        known = self._tools.get(id(tools))
        if known is not None and known[0] is tools:
            return known[1]
        weight = 0
        for tool in tools:
            if tool.deferred:
                continue  # The vendor keeps it out of the prompt.
            weight += self._count(tool.name + tool.description) + _estimate_json(tool.parameters) + _PER_TOOL
        if isinstance(tools, tuple):
            if len(self._tools) >= _TOOLS_SIZE:
                self._tools.clear()
            self._tools[id(tools)] = tools, weight
        return weight

    def scaled(self, weight: int) -> int:
        """Convert a weight to the vendor's tokens."""
        return weight if self.ratio == 1.0 else int(weight * self.ratio) + 1

    def unscaled(self, tokens: int) -> int:
        """Convert the vendor's tokens to a weight."""
        return tokens if self.ratio == 1.0 else int(tokens / self.ratio)

    def learn(self, weight: int, tokens: int) -> None:
        """Adjust the ratio: the vendor counted `tokens` for `weight`."""
        if weight < 200 or tokens <= 0:
            return  # A small request says little: the vendor's fixed overhead would dominate.
        seen = min(max(tokens / weight, 0.4), 4.0)
        self.ratio = seen if self.ratio == 1.0 else self.ratio * 0.7 + seen * 0.3

    def refuse(self, weight: int, message: str) -> None:
        """Lower the limit after the vendor rejected a request of `weight` with the message `message`."""
        tokens = self.scaled(weight)
        limit = limit_in(message)
        target = tokens * 6 // 10 if limit is None else min(limit * 9 // 10, tokens * 8 // 10)
        self.refused = target if self.refused is None else min(self.refused, target)


def limit_in(message: str) -> int | None:
    """Find the token limit in a vendor's error message: the smallest of its counts."""
    import re  # Needed after a rejection only.

    counts = [int(number.replace(",", "")) for number in re.findall(r"\b\d[\d,]{3,}\b", message)]
    return min(counts) if len(counts) > 1 and "token" in message.lower() else None


class Gauges:
    """The gauges of a runtime, one for each model name."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[str, Gauge] = {}

    def get(self, model: Model) -> Gauge:
        """Get or create a model's gauge."""
        name = model.name
        found = self.known.get(name)
        if found is None:
            found = self.known[name] = Gauge(offline_encoder(name) or estimate_text)
        return found


# -- the tokenizer, if it is installed with its data ----------------------------------------------------------

# tiktoken downloads an encoding that isn't cached, which must not happen during a run. These are its cache files
# and their digests.
_TIKTOKEN_FILES = {
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
    """Load tiktoken's tokenizer for an OpenAI model, if its data is cached; never downloads."""
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
    return lambda text: _count_sampled(text, encode)


def _is_cached(encoding: str) -> bool:
    from hashlib import sha256
    from tempfile import gettempdir

    if encoding not in _TIKTOKEN_FILES:
        return False
    file, expected = _TIKTOKEN_FILES[encoding]
    default = os.path.join(gettempdir(), "data-gym-cache")
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", default))
    try:
        with open(os.path.join(folder, file), "rb") as cached:
            return bool(folder) and sha256(cached.read()).hexdigest() == expected
    except OSError:
        return False


def _count_sampled(text: str, encode: Callable[[str], Sequence[int]]) -> int:
    if len(text) <= _SAMPLE:
        return len(encode(text))
    return len(encode(text[:_SAMPLE])) * len(text) // _SAMPLE + 1
