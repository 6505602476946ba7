"""Skills and their packages: a directory with SKILL.md, as the portable standard has it."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, cast

from ...errors import ConfigurationError
from ...errors.arguments import Checked
from ...types.base import Data
from ...types.content import clean_text

__all__ = [
    "MAX_FILE",
    "Skill",
    "SkillProblem",
    "list_files",
    "parse_skill",
    "read_file",
    "read_packages",
    "skill_problems",
]

MAX_HEAD = 16 * 1024
MAX_BODY = 64 * 1024
MAX_FILE = 256 * 1024
MAX_SKILLS = 500
MAX_LISTED = 50
MAX_DEPTH = 8

_FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")


class SkillProblem(ValueError):
    """A skill, or a file of one, that can't be used: what is wrong with it."""


class Skill(Data, metaclass=Checked):
    """Instructions for a kind of task. The model sees name and description, and loads the body when it needs it.

    - `body`: Markdown. `$ARGUMENTS` stands for what the model passes when it loads the skill.
    - `folder`: the directory with the skill's files; None if it has none.
    - `allowed_tools`: call patterns that a trusted skill is granted for the rest of the run.
    - `hidden`: the model isn't offered the skill, and can't load it.
    """

    name: str
    description: str
    body: str
    folder: Path | None = None
    allowed_tools: tuple[str, ...] = ()
    hidden: bool = False


def skill_problems(skill: Skill) -> list[str]:
    """List what is wrong with a skill."""
    found: list[str] = []
    if (problem := _name_problem(skill.name)) is not None:
        found.append(problem)
    if not isinstance(cast(Any, skill.description), str) or not 1 <= len(skill.description.strip()) <= 1024:
        found.append("description is a text of 1 to 1,024 characters, which says when to use the skill")
    if not isinstance(cast(Any, skill.body), str) or not skill.body.strip():
        found.append("the body is empty; write the instructions below the head")
    elif len(skill.body.encode(errors="replace")) > MAX_BODY:
        found.append(f"the body has more than {MAX_BODY:,} bytes; move details to files of the skill")
    return found


def _name_problem(name: Any) -> str | None:
    if not isinstance(name, str) or not 1 <= len(name) <= 64:
        return f"name is a text of 1 to 64 characters, not {name!r:.80}"
    if unicodedata.normalize("NFKC", name) != name or name != name.lower():
        return f"name {name!r} is in lower case and normal form (NFKC)"
    parts = name.split("-")
    if not all(part and all(letter.isalnum() for letter in part) for part in parts):
        return f"name {name!r} has letters, digits and single hyphens between them"
    return None


# -- packages ------------------------------------------------------------------------------------------------


def read_packages(root: Path) -> Iterator[Skill | SkillProblem]:
    """Read the skills of a directory, which has a directory for each; problems are yielded in their place."""
    try:
        folders = sorted(entry for entry in root.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        yield SkillProblem(f"{root}: it can't be read: {error.strerror or error}")
        return
    if (root / "SKILL.md").is_file():
        folders = [root]
    folders = [
        folder for folder in folders if (folder / "SKILL.md").exists() or (folder / "SKILL.md").is_symlink()
    ]
    if not folders:
        yield SkillProblem(f"{root}: no directory in it has a SKILL.md")
    if len(folders) > MAX_SKILLS:
        yield SkillProblem(f"{root}: it has {len(folders):,} skills; the limit is {MAX_SKILLS}")
    for folder in folders[:MAX_SKILLS]:
        try:
            yield _read_package(root, folder)
        except SkillProblem as problem:
            yield SkillProblem(f"{folder}: {problem}")


def _read_package(root: Path, folder: Path) -> Skill:
    if not folder.resolve().is_relative_to(root.resolve()):
        raise SkillProblem("it is a link that leads out of the directory of skills")
    data = read_file(folder, "SKILL.md", MAX_HEAD + MAX_BODY + 1)
    if len(data) > MAX_HEAD + MAX_BODY:
        raise SkillProblem(f"SKILL.md has more than {MAX_HEAD + MAX_BODY:,} bytes")
    try:
        skill = parse_skill(data.decode(), folder.resolve())
    except UnicodeDecodeError as error:
        raise SkillProblem(f"SKILL.md is not UTF-8: {error}") from error
    if skill.name != unicodedata.normalize("NFKC", folder.name):
        raise SkillProblem(f"its name is {skill.name!r}, but its directory is called {folder.name!r}")
    if problems := skill_problems(skill):
        raise SkillProblem("; ".join(problems))
    return skill


def parse_skill(text: str, folder: Path | None = None) -> Skill:
    """Parse a SKILL.md: a head in YAML between two lines `---`, and the body. Raises `SkillProblem`.

    Fields that the standard doesn't have are ignored, but for `disable-model-invocation`.
    """
    lines = clean_text(text).removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    end = next((place for place, line in enumerate(lines) if place and line.rstrip() == "---"), None)
    if lines[0].rstrip() != "---" or end is None:
        raise SkillProblem("SKILL.md begins with a head between two lines ---")
    head = "\n".join(lines[1:end])
    if len(head) > MAX_HEAD:
        raise SkillProblem(f"the head has more than {MAX_HEAD:,} characters")
    fields = _parse_head(head)
    problems = [f"{name} is missing" for name in ("name", "description") if name not in fields]
    texts = ("name", "description", "license", "compatibility", "allowed-tools")
    problems += [
        f"{name} is a text, not {fields[name]!r:.80}"
        for name in texts
        if name in fields and not isinstance(fields[name], str)
    ]
    metadata: Any = fields.get("metadata", {})
    if not isinstance(metadata, dict) or not all(
        isinstance(each, str) for pair in cast(dict[Any, Any], metadata).items() for each in pair
    ):
        problems.append("metadata is a map of texts; put numbers in quotes")
    if len(fields.get("compatibility") or "x") > 500:
        problems.append("compatibility has at most 500 characters")
    hidden = fields.get("disable-model-invocation", False)
    if not isinstance(hidden, bool):
        problems.append(f"disable-model-invocation is true or false, not {hidden!r:.80}")
    if problems:
        raise SkillProblem("; ".join(problems))
    tools = tuple(_tokens(fields.get("allowed-tools", "")))
    body = "\n".join(lines[end + 1 :]).strip()
    return Skill(fields["name"], fields["description"].strip(), body, folder, tools, hidden)


def _parse_head(head: str) -> dict[str, Any]:
    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise ConfigurationError(
            "skills in directories need the package 'yaml', which isn't installed: pip install 'wakeful[skills]'"
        ) from error
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(head, yaml.SafeLoader)):
            raise SkillProblem("the head has an alias (*name), which skills don't have")
        fields: Any = yaml.safe_load(head)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SkillProblem(f"the head is not YAML: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(fields, dict):
        raise SkillProblem("the head is a map of fields, such as `name: refunds`")
    return {str(name): value for name, value in cast(dict[Any, Any], fields).items()}


def _tokens(text: str) -> Iterator[str]:
    """The words of a text, in which parentheses group."""
    word, depth = "", 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter.isspace() and depth <= 0:
            if word:
                yield word
            word = ""
        else:
            word += letter
    if word:
        yield word


# -- files ---------------------------------------------------------------------------------------------------


def read_file(folder: Path, path: str, limit: int = MAX_FILE) -> bytes:
    """Read up to `limit` bytes of a regular file below a directory; raises `SkillProblem`.

    Links are followed only within the directory.
    """
    target = _inside(folder, path)
    try:
        # Non-blocking: opening a pipe would wait for its writer.
        handle = os.open(target, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError) as error:
        raise SkillProblem(f"{path!r:.120} can't be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise SkillProblem(f"{path!r:.120} is no regular file")
    with os.fdopen(handle, "rb") as file:
        return file.read(limit)


def _inside(folder: Path, path: str) -> Path:
    pure = PurePosixPath(path)
    if not path or "\\" in path or "\0" in path or pure.is_absolute() or ".." in pure.parts:
        raise SkillProblem(f"{path!r:.120} is no path below the skill's directory, such as references/rules.md")
    target, root = Path(os.path.realpath(folder / pure)), Path(os.path.realpath(folder))
    if not target.is_relative_to(root) or target == root:
        raise SkillProblem(f"{path!r:.120} leads out of the skill's directory")
    return target


def list_files(folder: Path) -> list[str]:
    """The first files of a skill beside SKILL.md, without links and hidden ones."""
    found: list[str] = []
    for parent, folders, files in os.walk(folder):
        depth = len(Path(parent).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if depth < MAX_DEPTH else []
        for name in sorted(files):
            path = Path(parent, name)
            if not name.startswith(".") and path != folder / "SKILL.md" and not path.is_symlink():
                found.append(path.relative_to(folder).as_posix())
                if len(found) >= MAX_LISTED:
                    return found
    return found
