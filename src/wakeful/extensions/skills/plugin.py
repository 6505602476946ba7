"""The plugin that offers skills: their catalogue, and the tools that load them, their files and their scripts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec

from ...errors import ToolError
from ...errors.arguments import checked
from ...plugins import BeforeInference, Plugin, Step
from ...state import AnyKey, StateKey
from ...tools import Tool, ToolContext
from ...types.base import Data
from ...types.ids import digest_of
from ..permissions import PatternError, RunGrants, Taint, parse_pattern
from .catalog import write_catalogue
from .package import MAX_FILE, Skill, SkillProblem, list_files, read_file, read_packages, skill_problems
from .scripts import ScriptRunner
from .sources import Prompt, PromptSource

__all__ = ["LoadedSkills", "Skills"]

_log = logging.getLogger(__name__)

SHARE = 0.02
CHARACTERS_PER_TOKEN = 4
# The window of a model of unknown facts.
DEFAULT_WINDOW = 100_000
# The most characters of loaded skills that a run keeps.
MAX_KEPT = 200 * 1024


class Loaded(Data, omit_defaults=True):
    """A skill as a run loaded it: the digest of its body, and the body."""

    digest: str
    body: str = ""


class LoadedSkills(StateKey[dict[str, Loaded], tuple[str, Loaded]]):
    """The skills that a run loaded, by name: they stay as they are until it ends, on any worker."""

    name: ClassVar[str] = "skills.loaded"
    merge = "commutative"
    default: ClassVar[dict[str, Loaded]] = {}

    def apply(self, value: dict[str, Loaded], update: tuple[str, Loaded]) -> dict[str, Loaded]:
        """Add a skill; one that is loaded stays. Without room for the body its digest is kept."""
        name, loaded = update
        if name in value:
            return value
        kept = sum(len(one.body) for one in value.values())
        return {**value, name: loaded if kept + len(loaded.body) <= MAX_KEPT else Loaded(loaded.digest)}


class Skills(Plugin):
    """Offers skills: a catalogue in the system text, and the tools `skill` and `skill_file`.

    `sources` are directories with packages (a directory with SKILL.md each, or one that has it), `Skill` objects,
    and prompt sources. A later skill replaces an earlier one of its name, which is logged. Code decides which
    skills there are: no directory is searched by itself.

    - `trusted`: the directories and `Skill` objects are as trusted as code. Loading such a skill grants the call
      patterns of its `allowed-tools` to the run, which lift questions of permission rules, and never a deny.
    - `scripts`: runs scripts of skills, offered as the tool `skill_script`. Its calls need an approval, or what
      permission rules say.
    - `strict`: a package with a mistake is refused; else it is logged and left out.
    """

    name: ClassVar[str] = "skills"
    keys: ClassVar[Sequence[AnyKey]] = (LoadedSkills, RunGrants, Taint)

    @checked
    def __init__(
        self,
        *sources: str | Path | Skill | PromptSource,
        trusted: bool = False,
        scripts: ScriptRunner | None = None,
        strict: bool = True,
    ) -> None:
        self._trusted, self._scripts, self._strict = trusted, scripts, strict
        self._problems: list[str] = []
        self._skills: dict[str, Skill] = {}
        self._sources: list[PromptSource] = []
        # The prompts of each source, by the skill's name; read when a run starts.
        self._prompts: dict[str, tuple[PromptSource, Prompt]] = {}
        for source in sources:
            self._take(source)

    def _take(self, source: Any) -> None:
        if isinstance(source, Skill):
            self._add(source, skill_problems(source))
        elif isinstance(source, str | Path):
            for found in read_packages(Path(source)):
                if isinstance(found, Skill):
                    self._add(found, [])
                elif self._strict:
                    self._problems.append(str(found))
                else:
                    _log.warning("skill left out: %s", found)
        elif callable(getattr(source, "prompts", None)) and callable(getattr(source, "render", None)):
            self._sources.append(source)
        else:
            self._problems.append(f"{source!r:.80} is no source: give a directory, a Skill(...) or a PromptSource")

    def _add(self, skill: Skill, problems: Sequence[str]) -> None:
        problems = [*problems, *_grant_problems(skill.allowed_tools)] if self._trusted else problems
        self._problems += [f"skill {skill.name!r:.80}: {problem}" for problem in problems]
        if not problems:
            if skill.name in self._skills:
                _log.warning("skill %r is defined twice; the later one counts", skill.name)
            self._skills[skill.name] = skill

    # -- plugin ----------------------------------------------------------------------------------------------

    def problems(self, agents: Mapping[str, Mapping[str, Tool]], configs: Mapping[str, Any]) -> Sequence[str]:
        """List the problems of all skills."""
        runner: Any = self._scripts
        if runner is not None and not callable(getattr(runner, "run", None)):
            return [*self._problems, f"scripts is a runner such as Subprocess(), not {runner!r:.80}"]
        return self._problems

    def tools(self) -> Sequence[Tool]:
        """The tools that load skills and their files, and run scripts if there is a runner."""
        found: list[Tool] = [_LoadSkill(self), _ReadFile(self)]
        return found if self._scripts is None else [*found, _RunScript(self, self._scripts)]

    async def run_start(self, ctx: Step) -> None:
        """Read the prompts of the servers. One that can't be reached keeps those that it had."""
        for source in self._sources:
            try:
                found = await source.prompts()
            except Exception as error:
                _log.warning("the prompts of %r can't be read: %s", source.name, error)
                continue
            others = {name: pair for name, pair in self._prompts.items() if pair[0] is not source}
            self._prompts = others | {f"{source.name}:{prompt.name}": (source, prompt) for prompt in found}

    async def before_inference(self, ctx: BeforeInference) -> None:
        """Add the catalogue to the system text, within 2% of the window."""
        if not ctx.specs:
            return
        listed = {name: skill.description for name, skill in self._skills.items() if not skill.hidden}
        listed |= {name: _described(prompt) for name, (_, prompt) in self._prompts.items()}
        characters = int(SHARE * (ctx.plan.window or DEFAULT_WINDOW) * CHARACTERS_PER_TOKEN)
        if text := write_catalogue(listed, characters):
            ctx.plan.add_system(text)

    # -- tools -----------------------------------------------------------------------------------------------

    async def load(self, ctx: ToolContext, name: str, arguments: Any) -> str:
        """The instructions of a skill. A run that loads it again gets the same, whatever has changed since."""
        skill = self._skills.get(name)
        if skill is not None and skill.hidden:
            raise SkillProblem(f"the skill {name!r:.80} isn't for the model to load")
        loaded = ctx.state[LoadedSkills].get(name)
        if loaded is None or not loaded.body:
            body = await self._body(ctx, name, skill, arguments)
            if loaded is not None and loaded.digest != digest_of(body.encode()):
                raise SkillProblem(
                    f"the skill {name!r:.80} has changed since this run loaded it; go on without it"
                )
            loaded = Loaded(digest_of(body.encode()), body)
            ctx.update(LoadedSkills, (name, loaded))
        if skill is not None and self._trusted:
            for pattern in skill.allowed_tools:
                ctx.update(RunGrants, pattern)
        return _with_arguments(loaded.body, arguments)

    async def _body(self, ctx: ToolContext, name: str, skill: Skill | None, arguments: Any) -> str:
        if skill is not None:
            files = list_files(skill.folder) if skill.folder is not None else []
            return skill.body + ("\n\nFiles, for `skill_file`: " + ", ".join(files) if files else "")
        if name not in self._prompts:
            known = ", ".join(sorted([*self._prompts, *[n for n, s in self._skills.items() if not s.hidden]])[:20])
            raise SkillProblem(f"there is no skill {name!r:.80}; there are {known or 'none'}")
        source, prompt = self._prompts[name]
        given = _named_arguments(prompt, arguments)
        text = await source.render(prompt.name, given)
        if name not in ctx.state[Taint]:
            ctx.update(Taint, name)  # The text is the server's.
        return text[:MAX_FILE]

    def folder_of(self, name: str) -> Path:
        """The directory of a skill that the model may load; raises `SkillProblem`."""
        skill = self._skills.get(name)
        if skill is None or skill.hidden or skill.folder is None:
            raise SkillProblem(f"there is no skill {name!r:.80} with files")
        return skill.folder


class _SkillTool(Tool):
    def __init__(self, plugin: Skills) -> None:
        self._plugin = plugin


class _LoadSkill(_SkillTool):
    name = "skill"
    description = "Load the instructions of a skill by its name. Follow them for the task that the skill is for."
    effect = "pure"

    async def run(self, ctx: ToolContext, name: str, arguments: str | dict[str, Any] = "") -> str:
        """Load a skill."""
        try:
            return await self._plugin.load(ctx, name, arguments)
        except SkillProblem as problem:
            raise ToolError(str(problem)) from None


class _ReadFile(_SkillTool):
    name = "skill_file"
    description = "Read a text file of a skill, by a path that its instructions or its list of files name."
    effect = "pure"

    def run(self, name: str, path: str) -> str:
        """Read a file."""
        try:
            data = read_file(self._plugin.folder_of(name), path, MAX_FILE + 1)
            text = data[:MAX_FILE].decode(errors="replace" if len(data) > MAX_FILE else "strict")
        except SkillProblem as problem:
            raise ToolError(str(problem)) from None
        except UnicodeDecodeError:
            raise ToolError(f"{path!r:.120} is not a text in UTF-8") from None
        return (
            text if len(data) <= MAX_FILE else f"{text}\n[The file is longer than {MAX_FILE:,} bytes and was cut.]"
        )


class _RunScript(_SkillTool):
    name = "skill_script"
    description = "Run a script of a skill, such as scripts/check.py, with arguments. Returns its output."
    approval = True
    hints = ("script",)

    def __init__(self, plugin: Skills, runner: ScriptRunner) -> None:
        super().__init__(plugin)
        self._runner = runner

    async def run(self, name: str, script: str, arguments: list[str] = []) -> dict[str, Any]:  # noqa: B006
        """Run a script."""
        try:
            folder = self._plugin.folder_of(name)
            if not script.startswith("scripts/"):
                raise SkillProblem(f"{script!r:.120} isn't below scripts/, where a skill has its scripts")
            read_file(folder, script, 1)
            result = await self._runner.run(folder, script, arguments)
        except SkillProblem as problem:
            raise ToolError(str(problem)) from None
        return msgspec.to_builtins(result)


def _grant_problems(patterns: Sequence[str]) -> list[str]:
    found: list[str] = []
    for text in patterns:
        try:
            if set(parse_pattern(text).selector) <= {"*"}:
                found.append(f"allowed-tools: {text!r:.80} would grant every tool; name them")
        except PatternError as error:
            found.append(f"allowed-tools: {text!r:.80} is no call pattern: {error}")
    return found


def _described(prompt: Prompt) -> str:
    arguments = [name if name in prompt.required else f"{name}?" for name in prompt.arguments]
    return prompt.description + (f" Arguments: {', '.join(arguments)}." if arguments else "")


def _named_arguments(prompt: Prompt, given: Any) -> dict[str, str]:
    """The arguments of a prompt as its server takes them."""
    if isinstance(given, str) and given and len(prompt.arguments) == 1:
        return {prompt.arguments[0]: given}
    named = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    missing = [name for name in prompt.required if name not in named]
    unknown = [name for name in named if name not in prompt.arguments]
    if missing or unknown:
        raise SkillProblem(
            f"the arguments are an object with {', '.join(prompt.arguments) or 'no fields'}; "
            f"missing: {', '.join(missing) or 'none'}, unknown: {', '.join(unknown) or 'none'}"
        )
    return {name: str(value) for name, value in named.items()}


def _with_arguments(body: str, given: Any) -> str:
    text = given if isinstance(given, str) else msgspec.json.encode(given).decode() if given else ""
    if "$ARGUMENTS" in body:
        return body.replace("$ARGUMENTS", text)
    return f"{body}\n\nArguments: {text}" if text else body
