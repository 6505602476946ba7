"""The commands `wakeful models` and `--model` against vendors on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace as altered
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner
from wire_anthropic import Anthropic
from wire_openai import Responses
from wire_script import Says, Script
from wire_server import WireServer

from wakeful.cli.app import app
from wakeful.cli.models import Tried, _look, _report, _state
from wakeful.models import ModelFacts
from wakeful.types.runs import Usage

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "AWS_BEARER_TOKEN_BEDROCK")


async def wakeful(*arguments: str, **env: str) -> tuple[int, str, str]:
    clean = {name: value for name, value in os.environ.items() if name not in KEYS and "proxy" not in name.lower()}
    command = [sys.executable, "-m", "wakeful.cli", *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, env={**clean, "NO_COLOR": "1", **env}, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


async def test_models_try_makes_one_small_call() -> None:
    reply = Responses().answer(Script([Says(["rea", "dy"])], usage=Usage(1_000_000, 1000)))
    async with WireServer(reply) as server:
        code, out, err = await wakeful(
            "models", "test", "openai:gpt-5-mini", "--json", OPENAI_API_KEY="sk-secret", OPENAI_BASE_URL=server.url
        )
        assert len(server.requests) == 1
    assert (code, err) == (0, "")
    tried = json.loads(out)
    assert (tried["text"], tried["pieces"], tried["stop"]) == ("ready", 2, "end_turn")
    assert tried["usage"]["cost"] == 252_000
    assert tried["facts"]["context_window"] == 400_000
    assert 0 <= tried["first_ms"] <= tried["total_ms"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [("bad_key", "the key is wrong"), ("not_found", "no such model"), ("overloaded", "capacity")],
)
async def test_models_try_error_hides_the_key(fault: Any, words: str) -> None:
    codec = Anthropic()
    async with WireServer(codec.fault(fault)) as server:
        code, out, err = await wakeful(
            "models", "test", "anthropic:claude-opus-5", ANTHROPIC_API_KEY=codec.key, ANTHROPIC_BASE_URL=server.url
        )
    assert (code, out) == (1, "")
    assert words in err
    assert codec.key not in err


async def test_models_try_names_missing_key_and_vendor() -> None:
    code, _, err = await wakeful("models", "test", "openai:gpt-5-mini")
    assert code == 1
    assert "set OPENAI_API_KEY" in err
    code, _, err = await wakeful("models", "test", "opnai:gpt-5-mini")
    assert code != 0
    assert "did you mean 'openai'?" in err


async def test_models_list_shows_needs_and_reachability() -> None:
    async with WireServer() as server:
        gone = "http://127.0.0.1:1"
        code, out, err = await wakeful(
            *["models", "list", "--check", "--json"],
            OPENAI_API_KEY="sk-secret",
            OPENAI_BASE_URL=server.url,
            ANTHROPIC_API_KEY="sk-secret",
            ANTHROPIC_BASE_URL=gone,
            OLLAMA_BASE_URL=gone,
            VLLM_BASE_URL=gone,
            LMSTUDIO_BASE_URL=gone,
        )
        assert server.requests == []
    assert (code, err) == (0, "")
    found = {one["vendor"]: one for one in map(json.loads, out.splitlines())}
    assert found["openai"]["configured"]
    assert found["openai"]["key"] == "OPENAI_API_KEY"
    assert found["openai"]["reachable"] is True
    assert found["anthropic"]["reachable"] is False
    assert "GEMINI_API_KEY" in found["google"]["needs"]
    assert found["local"]["configured"]
    assert "sk-secret" not in out
    code, out, _ = await wakeful("models", "list", OPENAI_API_KEY="sk-secret")
    assert "openai                       ready (OPENAI_API_KEY)" in out
    assert "ollama                       ready at http://localhost:11434/v1" in out
    assert "openai-compatible            needs: a base URL: write openai-compatible:NAME@http://host/v1" in out


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("gpt-5-mini", "did you mean 'openai:gpt-5-mini'?"),
        ("openai:", "a model is named 'vendor:name'"),
        ("openai-compatible:qwen3", "write openai-compatible:qwen3@http://host/v1"),
        ("openai-compatible:qwen3@gpu:8000/v1", "the scheme is missing"),
        ("openai-compatible:qwen3@http://127.0.0.1:1/v1", "check that it is running"),
        ("openai-compatible:qwen3@http://me:PASSWORD@127.0.0.1:1/v1", "a user or a password in it"),
        ("openai:gpt-5@http://127.0.0.1:1/v1", "pass this model's address as base_url=..."),
        ("azure:mine", "set AZURE_OPENAI_ENDPOINT"),
        ("local:large", "there is 'local:smollm2'"),
    ],
)
def test_models_try_error_says_what_to_do(model: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_COMPATIBLE_BASE_URL", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    result = CliRunner().invoke(app, ["models", "test", model])
    assert isinstance(result.exception, SystemExit)
    assert (result.exit_code != 0, result.stdout) == (True, "")
    assert words in " ".join(result.stderr.split())
    assert "PASSWORD" not in result.stderr


@pytest.mark.parametrize("command", [("run", "Hi"), ("chat",)])
@pytest.mark.parametrize("model", ["local:smollm3", "openai-compatible:qwen3@gpu:8000/v1"])
def test_invalid_model_is_a_usage_error(
    command: tuple[str, ...], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_COMPATIBLE_BASE_URL", raising=False)
    result = CliRunner().invoke(app, [*command, "--model", model])
    assert (result.exit_code, result.stdout) == (2, "")


def test_run_without_prompt_says_what_is_missing() -> None:
    result = CliRunner().invoke(app, ["run", "--model", "openai:gpt-5-mini"])
    assert result.exit_code == 2
    assert 'say what to ask it: wakeful run --model openai:gpt-5-mini "Hello"' in " ".join(result.stderr.split())


def test_models_try_shows_url_and_known_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway/v1")
    assert _state(_look("openai")) == "ready (OPENAI_API_KEY) at http://gateway/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "gateway/v1")
    assert "OPENAI_BASE_URL is wrong: the scheme is missing" in _state(_look("openai"))
    tried = Tried("a:b", "ready", 1, 2, 1, Usage(3, 4), "end_turn")
    assert "3 tokens in, 4 out, at a price that isn't known" in _report(tried)
    free = replace(tried, facts=ModelFacts(input_price=0, output_price=0))
    assert "0.000000 dollars" in _report(free)


async def test_models_try_times_out() -> None:
    async with WireServer(altered(Responses().answer(Script([Says(["…"])])), hold=True)) as server:
        env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
        code, _, err = await wakeful("models", "test", "openai:gpt-5-mini", "--timeout", "0.5", **env)
    assert code == 1
    assert "gave no answer within 0.5 s; wait longer with --timeout" in err


async def test_run_with_a_model_needs_no_module() -> None:
    async with WireServer(Responses().answer(Script([Says(["Hello!"])]))) as server:
        env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
        code, out, _ = await wakeful("run", "--model", "openai:gpt-5-mini", "Hi", **env)
    assert (code, out.strip()) == (0, "Hello!")
    code, _, err = await wakeful("chat")
    assert code == 2
    assert "--model local:smollm2" in err
    code, _, err = await wakeful("chat", "app:runtime", "--model", "local:smollm2")
    assert code == 2
    assert "leave 'app:runtime' out" in err


@pytest.mark.long
async def test_chat_answers_on_a_fresh_machine() -> None:
    code, out, _ = await wakeful("run", "--model", "local:smollm2", "Say hello.")
    assert code == 0
    assert out.strip()
