"""Remembered approvals over HTTP, in the client and on the command line, and the grants of a run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from typer.testing import CliRunner

from sockets import serve_app
from wakeful import Agent, FunctionModel, Principal, Runtime, ScriptedModel, ToolContext, call, tool
from wakeful.cli.app import app as cli
from wakeful.client import Client
from wakeful.errors import InvalidDecision, UnknownGrant
from wakeful.extensions.permissions import Permissions, Policy, Rule, RunGrants
from wakeful.identity import ApiKeys, create_key
from wakeful.server import app, lifespan
from wakeful.types import Approval, Remember


@tool(grant_by=["repo"])
async def push(repo: str, branch: str) -> str:
    """Push a branch."""
    return f"pushed {branch}"


def answer(request: Any) -> Any:
    last = request.messages[-1]
    return "Pushed." if last.role == "tool" else call("push", repo="site", branch=last.text)


RULES = Policy(ask=[Rule("push", approval=Approval(requester=True))])


def office(**options: Any) -> Runtime:
    return Runtime(
        [Agent("coder", model=FunctionModel(answer), tools=[push])], plugins=[Permissions(RULES)], **options
    )


@asynccontextmanager
async def opened(kind: str) -> AsyncIterator[Any]:
    runtime = office()
    if kind == "runtime":
        async with runtime:
            yield runtime
        return
    async with serve_app(app(runtime)) as url, Client(url) as client:
        yield client


@pytest.mark.parametrize("kind", ["runtime", "client"])
async def test_grant_is_given_listed_and_revoked(kind: str) -> None:
    async with opened(kind) as agents:
        first = await agents.run("coder", "a", thread="t")
        (ticket,) = first.tickets
        assert ticket.offer.patterns[1] == 'push(repo = "site")'
        remember = Remember("thread", pattern='push(repo = "site")', seconds=3600)
        await agents.tickets.answer(ticket.id, ticket.approve(remember=remember))
        assert (await agents.run("coder", "b", thread="t")).status == "done"
        (grant,) = await agents.grants.list(scope="thread", scope_id="t")
        assert (grant.pattern, grant.rule, grant.tool) == ('push(repo = "site")', "ask push", "push")
        assert grant.expires_at - grant.created_at == 3_600_000
        assert await agents.grants.get(grant.id) == grant
        assert [row.id for row in await agents.grants.list()] == [grant.id]
        revoked = await agents.grants.revoke(grant.id)
        assert revoked.revoked_at is not None
        assert await agents.grants.revoke(grant.id) == revoked
        assert (await agents.run("coder", "c", thread="t")).status == "waiting"
        for missing in ("", "nothing"):
            with pytest.raises(UnknownGrant):
                await agents.grants.get(missing)


@pytest.mark.parametrize("kind", ["runtime", "client"])
async def test_grant_that_is_not_offered_is_refused(kind: str) -> None:
    async with opened(kind) as agents:
        (ticket,) = (await agents.run("coder", "a", thread="t")).tickets
        with pytest.raises(InvalidDecision, match="offers no grant for the 'agent'"):
            await agents.tickets.answer(ticket.id, ticket.approve(remember=Remember("agent")))
        assert (await agents.tickets.get(ticket.id)).status == "open"
        assert await agents.grants.list() == []


@asynccontextmanager
async def people(runtime: Runtime) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
    served = app(runtime, auth=ApiKeys(runtime.store))
    found: dict[str, httpx.AsyncClient] = {}
    async with lifespan(served):
        for name, role in {"ada": "user", "bob": "user", "op": "operator"}.items():
            _, text = await create_key(runtime.store, name, principal=name, scopes=[role])
            headers = {"Authorization": f"Bearer {text}"}
            found[name] = httpx.AsyncClient(
                transport=httpx.ASGITransport(served), base_url="http://wakeful.test", headers=headers
            )
        yield found


@pytest.mark.parametrize("scope", ["user", "thread", "run"])
async def test_callers_reach_their_own_grants_and_operators_all(scope: str) -> None:
    async with people(office()) as who:
        body = {"agent": "coder", "input": "a", "thread": "t", "wait": 60}
        run = (await who["ada"].post("/v1/runs", json=body)).json()
        (ticket,) = run["tickets"]
        decision = {"verdict": "approve", "remember": {"scope": scope}, "wait": 60}
        answered = await who["ada"].post(f"/v1/tickets/{ticket['id']}/answer", json=decision)
        assert answered.json()["status"] == "done", answered.text
        about = {"scope": scope, "scope_id": {"user": "ada", "thread": "t", "run": run["run_id"]}[scope]}

        async def ids(name: str, **query: str) -> list[str]:
            return [row["id"] for row in (await who[name].get("/v1/grants", params=query)).json()["items"]]

        (grant,) = await ids("op")
        assert await ids("ada", **about) == [grant]
        assert await ids("ada") == ([grant] if scope == "user" else [])
        assert await ids("bob", **about) == await ids("bob") == []
        path = f"/v1/grants/{grant}"
        assert (await who["bob"].get(path)).json()["code"] == "unknown-grant"
        assert (await who["bob"].post(f"{path}/revoke")).status_code == 404
        assert (await who["ada"].get(path)).json()["granted_by"] == "ada"
        assert (await who["ada"].post(f"{path}/revoke")).json()["revoked_by"] == "ada"
        refused = await who["ada"].get("/v1/grants", params={"scope": "user"})
        assert (refused.status_code, "scope_id=ada" in refused.json()["detail"]) == (400, True)


async def test_grants_of_another_tenant_are_out_of_reach() -> None:
    async with office() as runtime:
        first = await runtime.run("coder", "a", thread="t")
        await runtime.resume(first.run_id, first.tickets[0].approve(remember=Remember("thread")))
        (grant,) = await runtime.grants.list()
        other = runtime.tenant("other")
        assert await other.grants.list() == []
        with pytest.raises(UnknownGrant):
            await other.grants.revoke(grant.id)


# -- the command line ----------------------------------------------------------------------------------------

APP = """
from wakeful import Agent, FunctionModel, Runtime, call, tool
from wakeful.extensions.permissions import Permissions, Policy

@tool
async def push(repo: str, branch: str) -> str:
    "Push a branch."
    return f"pushed {branch}"

def answer(request):
    last = request.messages[-1]
    return "Pushed." if last.role == "tool" else call("push", repo="site", branch=last.text)

def make():
    agent = Agent("coder", model=FunctionModel(answer), tools=[push])
    return Runtime([agent], plugins=[Permissions(Policy(ask=["push"]))], store="app.db")
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    name = f"grants_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP)
    return f"{name}:make"


def wakeful(*arguments: str) -> Any:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def test_command_line_gives_lists_and_revokes_grants(target: str) -> None:
    assert wakeful("run", target, "coder", "a", "--thread", "t").exit_code == 3
    ticket = msgspec.json.decode(wakeful("tickets", "list", "app.db", "--json").stdout)
    assert (
        "its approval may be remembered for the run, thread"
        in wakeful("tickets", "show", "app.db", ticket["id"]).stdout
    )
    alone = wakeful("tickets", "approve", target, ticket["id"], "--for", "1d")
    assert (alone.exit_code, "add --remember" in alone.stderr) == (2, True)
    given = wakeful(
        "tickets", "approve", target, ticket["id"], "--remember", "thread", "--pattern", "push", "--for", "1d"
    )
    assert given.exit_code == 0, given.output
    assert wakeful("run", target, "coder", "b", "--thread", "t").exit_code == 0
    header, row = wakeful("grants", "list", "app.db").stdout.splitlines()
    assert header.split() == ["GRANT", "STATE", "FOR", "AGENT", "BY", "GIVEN", "PATTERN"]
    assert "thread t" in row
    assert row.endswith("push")
    assert wakeful("grants", "list", "app.db", "--scope", "thread", "--id", "u").stdout == "no grants\n"
    assert wakeful("grants", "list", "app.db", "--scope", "thread").exit_code == 2
    assert "revoked grant" in wakeful("grants", "revoke", "app.db", row.split()[0][:20]).stdout
    assert wakeful("grants", "revoke", "app.db", "nothing").exit_code == 2
    assert "revoked" in wakeful("grants", "list", "app.db").stdout
    assert wakeful("run", target, "coder", "c", "--thread", "t").exit_code == 3


# -- the grants of a run -------------------------------------------------------------------------------------


@tool(effect="pure")
async def unlock(pattern: str, ctx: ToolContext) -> str:
    """Grant a pattern for the rest of the run."""
    ctx.update(RunGrants, pattern)
    return "unlocked"


@pytest.mark.parametrize(
    ("rules", "pattern", "decision", "layer"),
    [
        (Policy(ask=["push"]), "push(repo = 'site')", "allow", "run"),
        (Policy(), "push", "allow", "run"),
        (Policy(ask=["push"]), "push(repo = 'other')", "ask", "managed"),
        (Policy(ask=["push"]), "not a (pattern", "ask", "managed"),
        (Policy(ask=[Rule("push", always=True)]), "push", "ask", "managed"),
        (Policy(deny=["push(branch = 'a')"]), "push", "deny", "managed"),
    ],
)
async def test_grant_of_the_run_lifts_questions_and_no_deny(
    rules: Policy, pattern: str, decision: str, layer: str
) -> None:
    model = ScriptedModel([call("unlock", pattern=pattern), call("push", repo="site", branch="a"), "done", "x"])
    agent = Agent("coder", model=model, tools=[push, unlock])
    async with Runtime([agent], plugins=[Permissions(rules)]) as runtime:
        result = await runtime.run("coder", "go", thread="t", principal=Principal("ada"))
        ruling = (await runtime.runs.calls(result.run_id))[1].ruling
        assert ruling is not None
        assert (ruling.decision, ruling.layer, ruling.grant_id) == (decision, layer, None)
