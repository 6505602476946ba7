"""Skills: packages, catalogue, loading, files, scripts, prompts, hostile packages, crashes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from wakeful import Agent, ConfigurationError, FunctionModel, ModelRequest, Runtime, ScriptedModel, call, tool
from wakeful.extensions.permissions import Permissions, Policy, Taint
from wakeful.extensions.skills import Prompt, Skill, Skills, Subprocess
from wakeful.extensions.skills.catalog import write_catalogue
from wakeful.extensions.skills.package import SkillProblem, parse_skill, read_file
from wakeful.stores import Store
from wakeful.testing import CrashSite, crash_matrix

HEAD = "---\nname: {name}\ndescription: {about}\n{more}---\n"


def package(root: Path, name: str, body: str = "Be kind to $ARGUMENTS.", more: str = "") -> Path:
    folder = root / name
    (folder / "references").mkdir(parents=True)
    (folder / "scripts").mkdir()
    (folder / "SKILL.md").write_text(HEAD.format(name=name, about=f"How to do {name}.", more=more) + body)
    return folder


def replies(messages: Sequence[Any]) -> list[str]:
    return [m.reply.content[0].text for m in messages if m.reply is not None]


def desk(
    *turns: Any, skills: Skills, tools: Sequence[Any] = (), plugins: Sequence[Any] = (), **options: Any
) -> Runtime:
    agent = Agent("desk", model=ScriptedModel([*turns, "done"]), tools=tools, plugins=[skills])
    return Runtime([agent], plugins=plugins, **options)


# -- loading -------------------------------------------------------------------------------------------------


async def test_skill_is_listed_and_loaded_with_its_files(tmp_path: Path) -> None:
    (package(tmp_path, "refunds") / "references" / "rules.md").write_text("Under 50: yes.")
    model = ScriptedModel(
        [
            call("skill", name="refunds", arguments="Ann"),
            call("skill_file", name="refunds", path="references/rules.md"),
            "done",
        ]
    )
    runtime = Runtime([Agent("desk", model=model, plugins=[Skills(tmp_path)])])
    await runtime.run("desk", "hi", thread="t")
    assert "<name>refunds</name><description>How to do refunds.</description>" in model.requests[0].system
    assert model.requests[0].system == model.requests[2].system
    assert replies(await runtime.threads.messages("t")) == [
        "Be kind to Ann.\n\nFiles, for `skill_file`: references/rules.md",
        "Under 50: yes.",
    ]


async def test_run_that_waited_sees_the_skill_as_it_was(tmp_path: Path) -> None:
    folder = package(tmp_path / "skills", "refunds", "First text.")

    @tool(approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    turns = [call("skill", name="refunds"), call("pay"), call("skill", name="refunds")]

    def make() -> Runtime:
        return Runtime(
            [Agent("desk", model=FunctionModel(plan(turns)), tools=[pay], plugins=[Skills(tmp_path / "skills")])],
            store=tmp_path / "app.db",
        )

    async with make() as runtime:
        result = await runtime.run("desk", "hi", thread="t")
    (folder / "SKILL.md").write_text(HEAD.format(name="refunds", about="x", more="") + "Second text.")
    async with make() as runtime:
        await runtime.resume(result.run_id, result.tickets[0].approve())
        texts = replies(await runtime.threads.messages("t"))
        assert [texts[0], texts[-1]] == ["First text.", "First text."]
        await runtime.run("desk", "again", thread="t2")
        assert replies(await runtime.threads.messages("t2"))[0] == "Second text."


def plan(turns: Sequence[Any]) -> Any:
    def answer(request: ModelRequest) -> Any:
        done = sum(message.role == "tool" for message in request.messages)
        return turns[done] if done < len(turns) else "done"

    return answer


@pytest.mark.parametrize(("trusted", "status"), [(True, "done"), (False, "waiting")])
async def test_trusted_skill_grants_its_tools_to_the_run(tmp_path: Path, trusted: bool, status: str) -> None:
    @tool
    async def push(repo: str) -> str:
        """Push."""
        return "pushed"

    package(tmp_path, "deploy", more="allowed-tools: push(repo = 'site')\n")
    skills = Skills(tmp_path, trusted=trusted)
    rules = Permissions(Policy(ask=["push"]))
    turns = [call("skill", name="deploy"), call("push", repo="site")]
    async with desk(*turns, skills=skills, tools=[push], plugins=[rules]) as runtime:
        assert (await runtime.run("desk", "hi")).status == status


async def test_hidden_and_unknown_skills_are_refused(tmp_path: Path) -> None:
    package(tmp_path, "secret", more="disable-model-invocation: true\n")
    turns = [
        call("skill", name="secret"),
        call("skill_file", name="secret", path="x"),
        call("skill", name="other"),
    ]
    async with desk(*turns, skills=Skills(tmp_path)) as runtime:
        await runtime.run("desk", "hi", thread="t")
        first, second, third = replies(await runtime.threads.messages("t"))
        assert "isn't for the model to load" in first
        assert "no skill 'secret' with files" in second
        assert "no skill 'other'; there are none" in third


def test_catalogue_stays_within_its_budget() -> None:
    many = {f"skill-{number:03}": "When you <want> & need it. " * 30 for number in range(300)}
    for characters in (2_000, 10_000, 40_000):
        text = write_catalogue(many, characters)
        assert 0.5 * characters < len(text) <= characters
        assert text == write_catalogue(dict(reversed(many.items())), characters)
        assert "<want>" not in text
    assert "more skills aren't listed" in write_catalogue(many, 10_000)
    assert write_catalogue({}, 1000) == write_catalogue(many, 10) == ""


# -- prompts of servers --------------------------------------------------------------------------------------


class Server:
    name = "wiki"
    is_down = False

    async def prompts(self) -> Sequence[Prompt]:
        if self.is_down:
            raise ConnectionError("refused")
        return [Prompt("summary", "Summarise a page.", ("page", "length"), ("page",))]

    async def render(self, prompt: str, arguments: Mapping[str, str]) -> str:
        return f"{prompt}: {arguments}"


async def test_prompt_of_a_server_is_a_skill_that_taints() -> None:
    turns = [call("skill", name="wiki:summary"), call("skill", name="wiki:summary", arguments={"page": "Home"})]
    async with desk(*turns, skills=Skills(Server())) as runtime:
        await runtime.run("desk", "hi", thread="t")
        wrong, right = replies(await runtime.threads.messages("t"))
        assert "missing: page" in wrong
        assert right.startswith("summary: {'page': 'Home'}")
        assert (await runtime.threads.state("t"))[Taint.name] == ("wiki:summary",)


async def test_server_that_is_down_has_no_prompts(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.is_down = True
    async with desk(skills=Skills(server)) as runtime:
        assert (await runtime.run("desk", "hi")).text == "done"
    assert "the prompts of 'wiki' can't be read: refused" in caplog.text


# -- packages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no head", "between two lines ---"),
        ("---\nname: a\n", "between two lines ---"),
        ("---\nname: [\n---\nx", "is not YAML"),
        ("---\n- a\n---\nx", "is a map of fields"),
        ("---\na: &x [1]\nb: *x\n---\nx", "alias"),
        ("---\nname: 7\ndescription: d\n---\nx", "name is a text, not 7"),
        ("---\nname: a\n---\nx", "description is missing"),
        ("---\nname: a\ndescription: d\nmetadata: {a: 1}\n---\nx", "map of texts"),
        ("---\nname: a\ndescription: d\ndisable-model-invocation: maybe\n---\nx", "true or false"),
        ("---\nname: !!python/object:os.system a\ndescription: d\n---\nx", "is not YAML"),
        ("---\n" + "a: " + "x" * 20_000 + "\n---\nx", "more than 16,384"),
        ("---\n" + "[" * 5000 + "\n---\nx", "is not YAML"),
    ],
)
def test_bad_head_is_refused(text: str, message: str) -> None:
    with pytest.raises(SkillProblem) as refused:
        parse_skill(text)
    assert message in str(refused.value)


def test_fields_of_other_programs_are_tolerated() -> None:
    head = "name: a\r\ndescription: >-\r\n  Two\r\n  lines.\r\ncontext: fork\r\nallowed-tools: b c(d = 'e f')"
    text = f"\ufeff---\r\n{head}\r\n---\r\nBody\r\n"
    skill = parse_skill(text)
    assert (skill.description, skill.body, skill.allowed_tools) == ("Two lines.", "Body", ("b", "c(d = 'e f')"))


def test_runtime_lists_the_problems_of_all_skills_at_once(tmp_path: Path) -> None:
    package(tmp_path, "Upper")
    package(tmp_path, "good")
    package(tmp_path, "empty", body="")
    package(tmp_path, "huge", body="x" * 70_000)
    (package(tmp_path, "other") / "SKILL.md").write_text(HEAD.format(name="another", about="x", more="") + "x")
    (package(tmp_path, "binary") / "SKILL.md").write_bytes(b"---\n\xff\n---\n")
    skills = Skills(tmp_path, tmp_path / "missing", Skill("a b", "", ""), 7, trusted=True)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError) as refused:
        desk(skills=skills)
    text = str(refused.value)
    for part in (
        "Upper",
        "empty: the body",
        "more than 65,536",
        "directory is called 'other'",
        "not UTF-8",
        "missing: it can't",
        "'a b'",
        "7 is no source",
    ):
        assert part in text, part
    assert "good" not in text
    desk(skills=Skills(tmp_path, strict=False))


@pytest.mark.parametrize("pattern", ["*", "f("])
def test_grant_of_every_tool_is_refused(tmp_path: Path, pattern: str) -> None:
    package(tmp_path, "greedy", more=f'allowed-tools: "{pattern}"\n')
    with pytest.raises(ConfigurationError, match="allowed-tools"):
        desk(skills=Skills(tmp_path, trusted=True))


@pytest.mark.parametrize(
    "path",
    ["../good/SKILL.md", "/etc/passwd", "", ".", "a\\b", "x\0y", "link", "linked/x", "pipe", "none", "references"],
)
def test_files_outside_the_skill_are_out_of_reach(tmp_path: Path, path: str) -> None:
    folder = package(tmp_path, "bad")
    package(tmp_path, "good")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "linked").symlink_to(tmp_path / "good")
    os.mkfifo(folder / "pipe")
    with pytest.raises(SkillProblem):
        read_file(folder, path)


def test_package_behind_a_link_out_of_its_root_is_refused(tmp_path: Path) -> None:
    package(tmp_path / "elsewhere", "evil")
    root = tmp_path / "skills"
    package(root, "good")
    (root / "evil").symlink_to(tmp_path / "elsewhere" / "evil")
    (package(root, "linked") / "SKILL.md").unlink()
    (root / "linked" / "SKILL.md").symlink_to(tmp_path / "elsewhere" / "evil" / "SKILL.md")
    with pytest.raises(ConfigurationError) as refused:
        desk(skills=Skills(root))
    assert len(refused.value.problems) == 2


async def test_huge_file_is_cut(tmp_path: Path) -> None:
    with (package(tmp_path, "big") / "references" / "log.txt").open("wb") as file:
        file.truncate(10_000_000_000)  # Sparse.
    async with desk(call("skill_file", name="big", path="references/log.txt"), skills=Skills(tmp_path)) as runtime:
        await runtime.run("desk", "hi", thread="t")
        (text,) = replies(await runtime.threads.messages("t"))
        assert len(text) < 300_000


# -- scripts -------------------------------------------------------------------------------------------------


async def test_script_runs_when_approved_with_a_scrubbed_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "sesame")
    code = "import os, sys; print(sorted(os.environ), sys.argv[1:], os.getcwd()); open('left', 'w'); sys.exit(3)"
    folder = package(tmp_path, "check")
    (folder / "scripts" / "a.py").write_text(code)
    turn = call("skill_script", name="check", script="scripts/a.py", arguments=["x y"])
    async with desk(turn, skills=Skills(tmp_path, scripts=Subprocess())) as runtime:
        result = await runtime.run("desk", "hi", thread="t")
        assert result.status == "waiting"
        await runtime.resume(result.run_id, result.tickets[0].approve())
        (text,) = replies(await runtime.threads.messages("t"))
    assert "'x y'" in text
    assert '"exit_code":3' in text
    assert "API_KEY" not in text
    assert str(tmp_path) not in text
    assert not (folder / "left").exists()


async def test_script_is_not_offered_without_a_runner(tmp_path: Path) -> None:
    package(tmp_path, "check")
    async with desk(skills=Skills(tmp_path)) as runtime:
        assert [spec.name for spec in runtime.agents.tools("desk")] == ["skill", "skill_file"]


@pytest.mark.parametrize("script", ["SKILL.md", "scripts/../SKILL.md", "scripts/a.exe", "scripts/none.py"])
async def test_script_outside_its_place_does_not_run(tmp_path: Path, script: str) -> None:
    (package(tmp_path, "check") / "scripts" / "a.exe").write_text("x")
    rules = Permissions(Policy(allow=["*"]))
    turn = call("skill_script", name="check", script=script)
    async with desk(turn, skills=Skills(tmp_path, scripts=Subprocess()), plugins=[rules]) as runtime:
        result = await runtime.run("desk", "hi")
        if result.tickets:
            result = await runtime.resume(result.run_id, result.tickets[0].approve())
        (row,) = await runtime.runs.calls(result.run_id)
        assert row.outcome == "error"


async def test_script_is_killed_at_its_limit_with_its_children(tmp_path: Path) -> None:
    folder = package(tmp_path, "slow")
    (folder / "scripts" / "a.sh").write_text("echo begun; sleep 600 & sleep 600")
    result = await Subprocess(seconds=0.2).run(folder, "scripts/a.sh", [])
    assert result.exit_code is None
    (folder / "scripts" / "b.sh").write_text("yes | head -c 3000000")
    assert len((await Subprocess(output=1000).run(folder, "scripts/b.sh", [])).stdout) == 1000


# -- crashes -------------------------------------------------------------------------------------------------


async def load_and_read(site: CrashSite) -> None:
    root = site.folder / "skills"
    if not root.exists():
        (package(root, "refunds") / "references" / "rules.md").write_text("Under 50: yes.")
    turns = [call("skill", name="refunds"), call("skill_file", name="refunds", path="references/rules.md")]
    agent = Agent("desk", model=FunctionModel(plan(turns)), plugins=[Skills(root)])
    async with Runtime([agent], store=site.store) as runtime:
        await runtime.run("desk", "hi", thread="t", request_id="r")


async def loaded_once(site: CrashSite, store: Store) -> None:
    (run,) = await store.runs()
    assert [(c.name, c.outcome) for c in await store.calls(run.id)] == [("skill", "ok"), ("skill_file", "ok")]


@pytest.mark.long
def test_skills_survive_every_kill() -> None:
    assert crash_matrix(load_and_read, check=loaded_once, points=["before", "after"]).kills >= 8
