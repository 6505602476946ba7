"""Authentication at a remote agent, and the secrecy of credentials."""

from __future__ import annotations

import asyncio
import base64
import logging
from pathlib import Path
from typing import Any

import pytest

from wakeful import Agent, Runtime
from wakeful.backends import FailedStatus
from wakeful.backends.a2a import ApiKey, Bearer, Env, OAuth2
from wakeful.errors import BackendError, ConfigurationError, NoCredentials
from wakeful.types.runs import Failed

from .requests import thread
from .servers import App, Receive, Scope, Send, Turn, Wrap, serving, tokens

SECRET = "s3cr3t-value"


async def answers(turn: Turn) -> None:
    await turn.open()
    await turn.updater.complete(turn.says("Hello."))


def requiring(header: str, *values: str) -> Wrap:
    """Answer 401, quoting the request, unless it has the header."""

    async def wrap(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        sent = dict(scope["headers"]).get(header.encode(), b"")
        if scope["path"] != "/rpc" or sent.decode() in values:
            return await app(scope, receive, send)
        await receive()
        await send({"type": "http.response.start", "status": 401, "headers": []})
        return await send({"type": "http.response.body", "body": b"bad credentials: " + sent})

    return wrap


async def function() -> str:
    return SECRET


@pytest.mark.parametrize("secret", [SECRET, Env("ANALYST_TOKEN"), lambda: SECRET, function, f"{SECRET}\n"])
async def test_bearer_token_is_sent(secret: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANALYST_TOKEN", SECRET)
    with serving(answers, wrap=requiring("authorization", f"Bearer {SECRET}")) as remote:
        assert (await thread(remote.url, auth=Bearer(secret)).ask("hi")).text == "Hello."


async def test_api_key_has_its_own_header() -> None:
    with serving(answers, wrap=requiring("x-api-key", SECRET)) as remote:
        assert (await thread(remote.url, auth=ApiKey("X-API-Key", SECRET)).ask("hi")).text == "Hello."


async def test_auth_may_be_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANALYST_TOKEN", SECRET)
    auth = {"type": "bearer", "token": {"env": "ANALYST_TOKEN"}}
    with serving(answers, wrap=requiring("authorization", f"Bearer {SECRET}")) as remote:
        assert (await thread(remote.url, auth=auth).ask("hi")).text == "Hello."


async def test_missing_secret_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANALYST_TOKEN", raising=False)
    with serving(answers) as remote:
        with pytest.raises(ConfigurationError, match="'ANALYST_TOKEN' holds no secret: set it"):
            await thread(remote.url, auth=Bearer(Env("ANALYST_TOKEN"))).ask("hi")
        with pytest.raises(ConfigurationError, match="agent 'analyst': Bearer's token is empty"):
            await thread(remote.url, auth=Bearer(lambda: "a\r\nb")).ask("hi")
        with pytest.raises(ConfigurationError, match="gave a NoneType, not a text"):
            await thread(remote.url, auth=Bearer(lambda: None)).ask("hi")  # type: ignore[arg-type, return-value]


def vault() -> str:
    raise TimeoutError(f"no lease for {SECRET}")


async def slow_vault() -> str:
    raise ValueError(f"{SECRET} is sealed")


def contents(folder: Path) -> bytes:
    return b"".join([file.read_bytes() for file in folder.iterdir()])


@pytest.mark.parametrize(
    ("auth", "named"),
    [
        (Bearer(vault), "backends.a2a.test_auth.vault (test_auth.py:"),
        (ApiKey("X-API-Key", slow_vault), "backends.a2a.test_auth.slow_vault (test_auth.py:"),
        (OAuth2("https://127.0.0.1:9/token", "me", lambda: [SECRET][1]), "backends.a2a.test_auth.<lambda>"),
    ],
)
async def test_failing_secret_function_is_named_without_secret(
    auth: Any, named: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(answers) as remote:
        analyst = Agent.remote("analyst", a2a=remote.url, allow_private=True, auth=auth)
        async with Runtime([analyst], store=tmp_path / "app.db") as runtime:
            result = await runtime.run("analyst", "hi", thread="t", check=False)
            events = [event async for event in runtime.events("t", follow=False)]
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "NoCredentials"
    assert result.error is not None
    assert result.error.startswith(f"NoCredentials: agent 'analyst': the function {named}")
    assert "call the function to see why, and retry the run" in result.error
    assert SECRET.encode() not in contents(tmp_path)
    for text in (repr(result), repr(events), caplog.text):
        assert SECRET not in text


async def test_unsent_message_is_sent_when_secret_is_available() -> None:
    given = [SECRET, None, SECRET, SECRET, SECRET]  # A secret for the card, but none for the message.

    def token() -> str:
        found = given.pop(0) if len(given) > 1 else SECRET
        if found is None:
            raise OSError("sealed")
        return found

    with serving(answers) as remote:
        talk = thread(remote.url, auth=Bearer(token))
        with pytest.raises(NoCredentials):
            await talk.ask("hi")
        assert (await talk.ask("hi")).text == "Hello."
    assert len(remote.messages) == 1


async def test_oauth2_token_is_fetched_once_and_shared() -> None:
    with tokens() as (url, seen), serving(answers, wrap=requiring("authorization", "Bearer token-1")) as remote:
        talks = [thread(remote.url, auth=OAuth2(url, "me", SECRET, ["read", "write"]))]
        talks += [type(talks[0])(talks[0].backend) for _ in range(4)]
        results = await asyncio.gather(*[talk.ask("hi") for talk in talks])
    assert [result.text for result in results] == ["Hello."] * 5
    assert len(seen) == 1
    assert seen[0]["form"] == "grant_type=client_credentials&scope=read+write"
    assert seen[0]["authorization"] == "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()


async def test_oauth2_token_is_renewed_before_expiry() -> None:
    with tokens(lifetime=0.0) as (url, seen), serving(answers) as remote:
        assert (await thread(remote.url, auth=OAuth2(url, "me", SECRET)).ask("hi")).text == "Hello."
        used = [headers["authorization"] for _, _, headers in remote.requests]
    assert used == [f"Bearer token-{n}" for n in range(1, len(seen) + 1)]
    assert len(used) > 1


async def test_refused_token_is_replaced_once() -> None:
    with tokens() as (url, seen), serving(answers, wrap=requiring("authorization", "Bearer token-2")) as remote:
        assert (await thread(remote.url, auth=OAuth2(url, "me", SECRET)).ask("hi")).text == "Hello."
        assert len(seen) == 2
    assert len(remote.messages) == 1
    with tokens() as (url, seen), serving(answers, wrap=requiring("authorization", "never")) as remote:
        result = await thread(remote.url, auth=OAuth2(url, "me", SECRET)).ask("hi")
        assert "check the agent's `auth`" in str(result.status)
        assert len(seen) == 2


async def test_missing_token_is_a_clear_error() -> None:
    with tokens(status=401) as (url, _), serving(answers) as remote, pytest.raises(BackendError) as failure:
        await thread(remote.url, auth=OAuth2(url, "me", SECRET)).ask("hi")
    assert (
        failure.value.detail == f"agent 'analyst': no token from {url}: HTTP 401; check the client's id and secret"
    )


@pytest.mark.parametrize("fails_at", [1, 2, 4])
async def test_late_token_is_waited_for_without_resend(fails_at: int) -> None:
    async def works(turn: Turn) -> None:
        updater = await turn.open()
        await turn.reached("work")
        await updater.complete(turn.says("Hello."))

    # Each request needs a new token: for the card, the message and the task.
    with tokens(lifetime=0.0, fails_at=fails_at) as (url, seen), serving(works, streaming=False) as remote:
        talk = asyncio.create_task(thread(remote.url, auth=OAuth2(url, "me", SECRET)).ask("hi"))
        await remote.wait("work")
        await remote.called(lambda: remote.calls("/rpc") > 2)
        remote.gate("work").set()
        assert (await talk).text == "Hello."
        assert len(seen) > fails_at
    assert len(remote.messages) == 1


async def test_token_lifetime_may_be_a_string() -> None:
    with tokens(lifetime="3600") as (url, seen), serving(answers) as remote:
        assert (await thread(remote.url, auth=OAuth2(url, "me", SECRET)).ask("hi")).text == "Hello."
        assert len(seen) == 1


@pytest.mark.parametrize("token", ["", "s3cr3t\r\nX-Evil: 1", "s3cr3t-ö"])
async def test_token_is_refused_when_header_cannot_carry_it(token: str) -> None:
    with (
        tokens(access_token=token) as (url, _),
        serving(answers) as remote,
        pytest.raises(BackendError) as failure,
    ):
        await thread(remote.url, auth=OAuth2(url, "me", SECRET)).ask("hi")
    assert failure.value.detail == f"agent 'analyst': no token from {url}: the answer isn't an OAuth2 token"


@pytest.mark.parametrize(
    "auth",
    [
        Bearer(SECRET),
        Bearer(lambda: SECRET),
        ApiKey("X-API-Key", SECRET),
        OAuth2("https://t.example", "me", SECRET),
    ],
)
async def test_secrets_are_in_no_error_repr_log_or_state(auth: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def quotes(turn: Turn) -> None:
        await turn.open()
        headers = turn.remote.requests[-1][2]
        quoted = headers.get("authorization", "") + headers.get("x-api-key", "")
        await turn.updater.failed(turn.says(f"I don't know {quoted}"))

    caplog.set_level(logging.DEBUG)
    with tokens() as (url, _):
        if isinstance(auth, OAuth2):
            auth = OAuth2(url, "me", SECRET)
        secret = "token-1" if isinstance(auth, OAuth2) else SECRET
        with serving(quotes) as remote:
            talk = thread(remote.url, auth=auth)
            result = await talk.ask("hi")
        with serving(quotes, wrap=requiring("authorization")) as remote:
            refused = await thread(remote.url, auth=auth).ask("hi")
    assert isinstance(result.status, FailedStatus)
    assert result.status.message.replace("Bearer ", "") == "I don't know ***"
    seen = [repr(auth), repr(talk.backend), repr(result), repr(refused), repr(talk.saved), repr(talk.shown)]
    loggers = ("wakeful", "httpx", "httpcore", "a2a.client")  # Includes the server's log.
    ours = [record.getMessage() for record in caplog.records if record.name.startswith(loggers)]
    for text in [*seen, *ours]:
        assert SECRET not in text
        assert secret not in text


def test_environment_variable_name_is_shown() -> None:
    assert repr(Bearer(Env("ANALYST_TOKEN"))) == "Bearer(Env(name='ANALYST_TOKEN'))"
    assert repr(OAuth2("https://t", "me", SECRET, ["a"])) == "OAuth2('https://t', 'me', ***, ('a',))"
