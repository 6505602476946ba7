"""Token counts: weights by content, calibration, and no tokenizer downloads."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from wakeful import Document, Image, Message, Text
from wakeful.context import Gauge, Gauges, Tally, count_tokens
from wakeful.context.tokens import estimate_text, limit_in, offline_encoder
from wakeful.models import ScriptedModel
from wakeful.types import Audio, Base64, Url, Video
from wakeful.types.content import Thinking, ToolCall, ToolReply
from wakeful.types.ids import new_id
from wakeful.types.messages import user_message
from wakeful.types.requests import ToolSpec

PROSE = "The quick brown fox jumps over the lazy dog and runs away into the forest. "


def message(role: Any, *parts: Any) -> Message:
    return Message(new_id(), role, parts, 1)


def test_estimate_counts_a_token_for_four_characters() -> None:
    assert estimate_text(PROSE * 100) == pytest.approx(len(PROSE) * 25, rel=0.01)
    assert estimate_text("") == 0


@pytest.mark.parametrize(
    ("text", "least"), [("漢字仮名交じり文" * 50, 0.9), ("Привет как дела " * 50, 0.4), ("🙂" * 50, 1)]
)
def test_estimate_counts_more_for_other_scripts(text: str, least: float) -> None:
    assert estimate_text(text) >= len(text) * least


@pytest.mark.parametrize(
    "part",
    [
        Image(Base64("image/png", "A" * 400_000)),
        Image(Url("https://example.com/a.png")),
        Audio(Base64("audio/mp3", "A" * 400_000)),
        Video(Url("https://example.com/a.mp4")),
        Document(Base64("application/pdf", "A" * 400_000)),
    ],
)
def test_media_weight_depends_on_kind(part: Any) -> None:
    assert 500 < count_tokens([message("user", part)]) < 20_000


def test_weight_includes_arguments_results_and_reasoning() -> None:
    bare = count_tokens([message("assistant", Text("ok"))])
    assert count_tokens([message("assistant", Text("ok"), ToolCall("1", "look", {"at": PROSE * 9}))]) > bare + 150
    assert count_tokens([message("assistant", Text("ok"), Thinking(PROSE * 9))]) > bare + 150
    assert count_tokens([message("tool", ToolReply("1", "look", (Text(PROSE * 9),)))]) > bare + 150


def test_gauge_caches_message_weights() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    gauge, history = Gauge(count), [user_message("one"), user_message("two")]
    for place, each in enumerate(history, 1):
        history[place - 1] = Message(each.id, "user", each.content, 1, seq=place)
    tally = Tally()
    tally.update(history, gauge)
    history.append(Message(new_id(), "user", (Text("three"),), 1, seq=3))
    for _ in range(3):
        weight = tally.update(history, gauge).weight
    assert counted == ["one", "two", "three"]
    assert weight == len("onetwothree") + 3 * 4
    assert Tally().update(list(history), gauge).weight == weight
    assert counted == ["one", "two", "three"]


def test_tally_restarts_when_its_list_changes() -> None:
    gauge, history = Gauge(), [user_message("one"), user_message("a longer one " * 9)]
    tally = Tally()
    before = tally.update(history, gauge).weight
    history[1:] = [user_message("x"), user_message("y")]
    assert tally.update(history, gauge).weight == count_tokens(history) != before


def test_gauge_ratio_follows_reported_usage() -> None:
    gauge = Gauge()
    gauge.learn(1000, 1500)
    assert gauge.scaled(1000) == 1501
    for _ in range(20):
        gauge.learn(1000, 2000)
    assert gauge.scaled(1000) == pytest.approx(2000, rel=0.01)
    assert gauge.unscaled(2000) == pytest.approx(1000, rel=0.01)


@pytest.mark.parametrize(("weight", "tokens"), [(10, 500), (1000, 0)])
def test_gauge_ignores_small_requests(weight: int, tokens: int) -> None:
    gauge = Gauge()
    gauge.learn(weight, tokens)
    assert gauge.ratio == 1.0


def test_gauge_ratio_is_bounded() -> None:
    gauge = Gauge()
    gauge.learn(1000, 10**9)
    assert gauge.ratio == 4.0


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        ("This model's maximum context length is 8192 tokens, your messages resulted in 9001 tokens.", 8192),
        ("prompt is too long: 213,462 tokens > 200,000 maximum", 200_000),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
        ("Request too large (413)", None),
        ("error 123456", None),
    ],
)
def test_gauge_reads_the_limit_from_a_rejection(said: str, limit: int | None) -> None:
    assert limit_in(said) == limit


def test_gauges_are_separate_for_each_model() -> None:
    gauges = Gauges()
    one, other = ScriptedModel([], name="one"), ScriptedModel([], name="other")
    gauges.get(one).learn(1000, 3000)
    assert gauges.get(ScriptedModel([], name="one")).ratio == 3.0
    assert gauges.get(other).ratio == 1.0


def test_tokenizer_is_never_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tiktoken")

    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("something went to the network")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert offline_encoder("openai:gpt-4o") is None
    (tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790").write_text("not what it should be")
    assert offline_encoder("openai:gpt-4o") is None
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert offline_encoder("openai:gpt-4o") is None
    assert offline_encoder("anthropic:claude") is None
    assert offline_encoder("scripted") is None


def test_tokenizer_files_match_tiktoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached encoding is used: here a small one under the name of the real one."""
    tiktoken = pytest.importorskip("tiktoken")
    from hashlib import sha1, sha256

    import tiktoken_ext.openai_public as public

    from wakeful.context import tokens

    asked: list[tuple[str, str]] = []

    def load(path: str, expected_hash: str) -> dict[bytes, int]:
        asked.append((sha1(path.encode()).hexdigest(), expected_hash))
        return {bytes([byte]): byte for byte in range(256)}

    monkeypatch.setattr(public, "load_tiktoken_bpe", load)
    for name, kept in tokens._TIKTOKEN_FILES.items():
        getattr(public, name)()
        assert asked.pop() == kept
    data = b"some data"
    (tmp_path / "file").write_bytes(data)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(tokens._TIKTOKEN_FILES, "o200k_base", ("file", sha256(data).hexdigest()))
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    count = offline_encoder("openai:gpt-4o")
    assert count is not None
    assert count("hello") == 5
    assert count("x" * 30_000) == pytest.approx(30_000, rel=0.01)


def test_tools_are_weighed_once() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    gauge, tools = Gauge(count), (ToolSpec("look", "Look around.", {"type": "object"}),)
    weights = {gauge.weigh_rest("Be kind.", tools, None) for _ in range(3)}
    assert len(weights) == 1
    assert counted.count("lookLook around.") == 1
    assert gauge.weigh_rest("", (*tools, *tools), None) > gauge.weigh_rest("", tools, None)
