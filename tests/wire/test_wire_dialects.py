"""Every known server of OpenAI's APIs: its address and key, what it is sent, and what is read from it."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from test_wire_chat_answers import call
from test_wire_responses_answers import CALL, CUSTOM, MESSAGE, SEARCH, completed, done, stream
from wire_openai import _chunk
from wire_replay import events, heard, sent
from wire_suite import HELLO, LOOK, RESULT, Heard

from wakeful import Agent, Runtime
from wakeful.errors import BadCredentials, ConfigurationError, InvalidRequest
from wakeful.models import CodeExecution, FileSearch, ModelRegistry, ModelRequest, WebSearch
from wakeful.models.compatible import (
    SERVERS,
    AzureModel,
    AzureResponsesModel,
    CompatibleModel,
    CompatibleResponsesModel,
    Dialect,
    Server,
    vendor,
)
from wakeful.models.openai import OpenAIChatModel, OpenAIModel
from wakeful.models.registry import RESPONSES_SERVERS
from wakeful.models.registry import SERVERS as NAMES
from wakeful.types.content import ServerTool, Text, Thinking, ToolCall
from wakeful.types.messages import user_message
from wakeful.types.requests import ModelSettings, OutputSpec

END = _chunk({}, "stop")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ANSWER = events(_chunk({"content": "ok"}), END)


def make(server: str, model: str = "m") -> Any:
    return partial(CompatibleModel, model, server=server, api_key="k", base_url="http://vendor.test/v1")


async def body_of(server: str, request: ModelRequest, model: str = "m") -> dict[str, Any]:
    return (await sent(make(server, model), [request], ANSWER))[0]


def tool_turn(*thoughts: Thinking, ident: str = "call_1") -> list[Any]:
    asked = ToolCall("0190-a", "look", {"at": "sky"}, ident)
    return [user_message("?"), Heard.of([*thoughts, asked]), RESULT("0190-a", "look"), user_message("!")]


# -- the table -----------------------------------------------------------------------------------------------


def test_registry_knows_every_server() -> None:
    assert set(NAMES) == set(SERVERS)
    assert {name for name, server in SERVERS.items() if server.responses is not None} == set(RESPONSES_SERVERS)


@pytest.mark.parametrize("name", SERVERS)
def test_server_has_an_address_and_names_its_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = SERVERS[name]
    for variable in (*server.keys, *server.urls):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SNOWFLAKE_ACCOUNT", "acme-1")
    model: Any = ModelRegistry().resolve(f"{name}:m")
    assert model.name == f"{name}:m"
    if server.needs_key:
        with pytest.raises(BadCredentials, match=server.keys[0]):
            model.check_credentials()
        monkeypatch.setenv(server.keys[0], "k")
    model.check_credentials()


@pytest.mark.parametrize("account", ["", "evil.test/x"])
def test_snowflake_needs_its_account(account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWFLAKE_ACCOUNT", account)
    with pytest.raises(ConfigurationError, match="SNOWFLAKE_ACCOUNT"):
        CompatibleModel("claude", server="snowflake")


async def test_user_adds_a_server_with_data() -> None:
    acme = Server("acme", "http://vendor.test/v1", (), Dialect(thoughts="reasoning"))
    runtime = Runtime([Agent("a", model="acme:large")], models={"acme": vendor(acme)})
    await runtime.close()
    assert ModelRegistry({"acme": vendor(acme)}).resolve("acme:large").name == "acme:large"
    said = await heard(partial(CompatibleModel, "large", server=acme), ANSWER)
    assert said.texts == ["ok"]


def test_server_without_responses_api_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="perplexity has no Responses API; use perplexity:m"):
        CompatibleResponsesModel("m", server="perplexity")


# -- one behaviour for all -----------------------------------------------------------------------------------


@pytest.mark.parametrize("server", SERVERS)
async def test_server_answers_are_read(server: str) -> None:
    chunks = [_chunk({"reasoning_content": "Hm."}), _chunk({"content": "I look."})]
    chunks += [_chunk({"tool_calls": [call(0, "look", '{"at": 1}', "call_1")]}), _chunk({}, "tool_calls")]
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    said = await heard(make(server), events(*chunks, {**END, "choices": [], "usage": usage}))
    assert (said.reasoning, said.texts, said.calls) == (["Hm."], ["I look."], [("look", {"at": 1})])
    assert (said.stop, said.usage.total_tokens) == ("tool_use", 7)


@pytest.mark.parametrize("server", SERVERS)
async def test_server_gets_a_valid_tool_turn(server: str) -> None:
    request = ModelRequest("Be brief.", tool_turn(ident="chatcmpl-tool-0123456789abcdef0123456789abcdef"), [LOOK])
    body = await body_of(server, request)
    roles = [message["role"] for message in body["messages"]]
    assert [role for role in roles if role != "assistant"] == ["system", "user", "tool", "user"]
    asked, reply = body["messages"][2], body["messages"][3]
    assert asked["tool_calls"][0]["id"] == reply["tool_call_id"]
    assert asked["content"] is None
    if server == "mistral":
        assert len(reply["tool_call_id"]) == 9
        assert roles[-2:] == ["assistant", "user"]
    else:
        assert reply["tool_call_id"].startswith("chatcmpl-tool-")


@pytest.mark.parametrize("server", SERVERS)
async def test_server_gets_settings_or_refuses_them(server: str) -> None:
    settings = {"seed": 7, "parallel_tool_calls": False, "service_tier": "auto", "user": "u", "logprobs": 2}
    for name, value in settings.items():
        request = ModelRequest("", [user_message("?")], settings=ModelSettings(**{name: value}))
        if name in SERVERS[server].dialect.refuses:
            with pytest.raises(InvalidRequest, match=f"takes no {name}"):
                await body_of(server, request)
            continue
        body = await body_of(server, request)
        place = {"seed": SERVERS[server].dialect.seed, "logprobs": "top_logprobs"}.get(name, name)
        assert body[place] == value


@pytest.mark.parametrize("server", SERVERS)
async def test_server_is_asked_for_typed_output(server: str) -> None:
    request = ModelRequest("", [user_message("?")], output=OutputSpec("output", CITY))
    body = await body_of(server, request)
    form = body.get("response_format", {}).get("type", "words")
    assert form == SERVERS[server].dialect.output
    assert form == "json_schema" or "JSON schema" in body["messages"][0]["content"]


@pytest.mark.parametrize("server", SERVERS)
async def test_server_gets_back_only_its_own_reasoning(server: str) -> None:
    details = [{"type": "reasoning.text", "text": "Hm.", "signature": "sig", "index": 0}]
    own = Thinking("Hm.", None, json.dumps({"reasoning_details": details}), server)
    other = Thinking("Hm.", None, json.dumps({"reasoning_details": details}), "elsewhere")
    body = await body_of(server, ModelRequest("", tool_turn(own)))
    assert body["messages"][1]["reasoning_details"] == details
    body = await body_of(server, ModelRequest("", tool_turn(other)))
    assert "sig" not in json.dumps(body)


async def test_groq_is_asked_for_typed_output_in_words_with_tools() -> None:
    request = ModelRequest("", [user_message("?")], [LOOK], output=OutputSpec("output", CITY))
    body = await body_of("groq", request)
    assert "response_format" not in body
    assert "JSON schema" in body["messages"][0]["content"]


# -- reasoning -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "model", "field"),
    [
        ("deepseek", "deepseek-reasoner", "reasoning_content"),
        ("moonshot", "kimi-k2.5", "reasoning_content"),
        ("zai", "glm-5", "reasoning_content"),
        ("fireworks", "m", "reasoning_content"),
        ("cerebras", "gpt-oss-120b", "reasoning"),
    ],
)
async def test_reasoning_text_goes_back_in_its_field(server: str, model: str, field: str) -> None:
    said = await heard(make(server, model), events(_chunk({field: "Hm."}), _chunk({"content": "I look."}), END))
    thought = said.message().content[0]
    assert thought == Thinking("Hm.", field, None, server)
    body = await body_of(server, ModelRequest("", tool_turn(thought)), model)
    assert body["messages"][1][field] == "Hm."


async def test_zai_keeps_reasoning_that_goes_back() -> None:
    thought = Thinking("Hm.", "reasoning_content", None, "zai")
    assert (await body_of("zai", ModelRequest("", tool_turn(thought))))["thinking"] == {"clear_thinking": False}
    assert "thinking" not in await body_of("zai", ModelRequest("", tool_turn()))


async def test_reasoning_goes_back_in_tags_for_glm_on_cerebras() -> None:
    thought = Thinking("Hm.", "reasoning", None, "cerebras")
    answer = Heard.of([thought, Text("Four.")])
    body = await body_of(
        "cerebras", ModelRequest("", [user_message("?"), answer, user_message("!")]), "zai-glm-4.7"
    )
    assert body["messages"][1] == {"role": "assistant", "content": "<think>Hm.</think>Four."}


async def test_reasoning_goes_back_in_chunks_to_mistral() -> None:
    chunks = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "Four."},
    ]
    said = await heard(make("mistral"), events(_chunk({"content": chunks}), END))
    body = await body_of("mistral", ModelRequest("", [user_message("?"), said.message(), user_message("!")]))
    assert body["messages"][1] == {"role": "assistant", "content": chunks}


@pytest.mark.parametrize(("server", "model"), [("deepseek", "deepseek-v4"), ("moonshot", "kimi-k2.5")])
async def test_call_of_another_vendor_has_empty_reasoning(server: str, model: str) -> None:
    body = await body_of(server, ModelRequest("", tool_turn()), model)
    assert body["messages"][1]["reasoning_content"] == ""
    body = await body_of(
        server, ModelRequest("", tool_turn()), {"deepseek": "deepseek-chat"}.get(server, "moonshot-v1")
    )
    assert "reasoning_content" not in body["messages"][1]


async def test_gemini_signatures_go_back_with_their_calls() -> None:
    plain = partial(CompatibleModel, "gemini-3", base_url="http://vendor.test/v1")
    signed = {**call(0, "look", "{}", "a"), "extra_content": {"google": {"thought_signature": "c2ln"}}}
    said = await heard(plain, events(_chunk({"tool_calls": [signed]}), END))
    message = said.message()
    (body,) = await sent(plain, [ModelRequest("", [user_message("?"), message])], ANSWER)
    assert body["messages"][1]["tool_calls"][0]["extra_content"] == signed["extra_content"]
    body = await body_of("groq", ModelRequest("", [user_message("?"), message]))
    assert "extra_content" not in body["messages"][1]["tool_calls"][0]


@pytest.mark.parametrize(
    ("server", "model", "effort", "fields"),
    [
        ("openrouter", "m", "high", {"reasoning": {"effort": "high"}}),
        ("openrouter", "m", 2000, {"reasoning": {"max_tokens": 2000}}),
        ("snowflake", "claude-sonnet-5", 2000, {"reasoning": {"max_tokens": 2000}}),
        ("zai", "m", "high", {"thinking": {"type": "enabled", "clear_thinking": False}}),
        ("deepseek", "m", "none", {"thinking": {"type": "disabled"}}),
        ("alibaba", "m", 2000, {"enable_thinking": True, "thinking_budget": 2000}),
        ("alibaba", "m", "none", {"enable_thinking": False}),
        ("xai", "m", "low", {"reasoning_effort": "low"}),
    ],
)
async def test_effort_is_set_in_the_words_of_the_server(server: str, model: str, effort: Any, fields: Any) -> None:
    request = ModelRequest("", [user_message("?")], settings=ModelSettings(reasoning=effort))
    body = await body_of(server, request, model)
    assert {name: body[name] for name in fields} == fields


@pytest.mark.parametrize(("server", "word"), [("mistral", "any"), ("xai", "required"), ("moonshot", None)])
async def test_forced_call_has_the_word_of_the_server(server: str, word: str | None) -> None:
    request = ModelRequest("", [user_message("?")], [LOOK], ModelSettings(tool_choice="required"))
    if word is None:
        with pytest.raises(InvalidRequest, match="takes no tool_choice 'required'"):
            await body_of(server, request)
    else:
        assert (await body_of(server, request))["tool_choice"] == word


# -- server tools --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "spec", "fields"),
    [
        ("openrouter", WebSearch(), {"tools": [{"type": "openrouter:web_search"}]}),
        ("groq", WebSearch(), {"tools": [{"type": "browser_search"}]}),
        ("groq", CodeExecution(), {"tools": [{"type": "code_interpreter"}]}),
        ("alibaba", WebSearch(), {"enable_search": True}),
        ("perplexity", WebSearch(), {}),
        (
            "openrouter",
            WebSearch(extra={"parameters": {"max_results": 3}}),
            {"tools": [{"type": "openrouter:web_search", "parameters": {"max_results": 3}}]},
        ),
    ],
)
async def test_server_tool_is_switched_on(server: str, spec: Any, fields: dict[str, Any]) -> None:
    body = await body_of(server, ModelRequest("", [user_message("?")], server_tools=[spec]))
    assert {name: body[name] for name in fields} == fields


async def test_server_tool_that_a_server_lacks_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"together:m.* has no WebSearch"):
        await body_of("together", ModelRequest("", [user_message("?")], server_tools=[WebSearch()]))
    with pytest.raises(InvalidRequest, match="takes no max_uses in WebSearch"):
        await body_of("groq", ModelRequest("", [user_message("?")], server_tools=[WebSearch(max_uses=2)]))


async def test_openai_server_tools_are_switched_on() -> None:
    responses = partial(OpenAIModel, "gpt-5-mini", api_key="k", base_url="http://vendor.test/v1")
    specs = [
        WebSearch(allowed_domains=("a.test",), blocked_domains=("b.test",)),
        CodeExecution(),
        FileSearch(("vs_1",), 3, extra={"filters": {}}),
    ]
    request = ModelRequest("", [user_message("?")], [LOOK], server_tools=specs)
    (body,) = await sent(responses, [request], stream(completed(MESSAGE)))
    assert body["tools"][:3] == [
        {"type": "web_search", "filters": {"allowed_domains": ["a.test"], "blocked_domains": ["b.test"]}},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 3, "filters": {}},
    ]
    chat = partial(OpenAIChatModel, "gpt-4o-search", api_key="k", base_url="http://vendor.test/v1")
    (body,) = await sent(chat, [ModelRequest("", [user_message("?")], server_tools=[WebSearch()])], ANSWER)
    assert body["web_search_options"] == {}


# -- the Responses API ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", RESPONSES_SERVERS)
async def test_server_of_the_responses_api_is_read(server: str) -> None:
    plain = partial(CompatibleResponsesModel, "m", server=server, api_key="k", base_url="http://vendor.test/v1")
    said = await heard(plain, stream(done(SEARCH), done(CALL, 1), completed(SEARCH, CALL)))
    assert said.calls == [("look", {"at": 1})]
    assert said.parts[0].vendor == f"{server}-responses"
    answer = Heard.of([said.parts[0], Text("Hi")])
    (body,) = await sent(
        plain, [ModelRequest("", [*HELLO.messages, answer, user_message("!")])], stream(completed(MESSAGE))
    )
    assert body["input"][1] == SEARCH
    assert ("include" in body) is bool(SERVERS[server].responses and SERVERS[server].responses.encrypted)


async def test_xai_runs_its_custom_tools_itself() -> None:
    plain = partial(
        CompatibleResponsesModel, "grok-5", server="xai", api_key="k", base_url="http://vendor.test/v1"
    )
    said = await heard(plain, stream(done({**CUSTOM, "name": "x_keyword_search"}), completed(MESSAGE)))
    assert said.calls == []
    assert isinstance(said.parts[0], ServerTool)


async def test_azure_has_both_apis() -> None:
    options = {"endpoint": "http://azure.test", "api_version": "2025-04-01-preview", "api_key": "k"}
    said = await heard(partial(AzureResponsesModel, "dep", **options), stream(completed(MESSAGE)))
    assert said.texts == ["Hi"]
    assert (await heard(partial(AzureModel, "dep", **options), ANSWER)).texts == ["ok"]
