"""Every Python block of the pages runs and prints what it says it prints; every relative link leads somewhere.

A block stands alone, in a namespace of its own, unless `<!-- continues -->` right above it says that it
continues the block before. A block may await. One that defines tests is run by pytest, as a reader would run it.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import logging
import pkgutil
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Pages for those who work on wakeful: their links are checked, too.
OTHERS = [
    ROOT / name for name in ("llms.txt", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/ACCEPTANCE.md")
]
CONTINUES = "<!-- continues -->"


@dataclass(frozen=True)
class Block:
    """One Python block; `before` are the blocks of its page that it continues."""

    page: Path
    line: int
    source: str
    before: tuple[Block, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def chain(self) -> tuple[Block, ...]:
        return (*self.before, self)

    @property
    def expected(self) -> list[str]:
        """The expected output of the block."""
        lines = (line.strip() for line in self.source.splitlines())
        return [line[2:].removeprefix(" ") for line in lines if line.startswith("#>")]

    @property
    def has_tests(self) -> bool:
        return re.search(r"^(async )?def test_", self.source, re.MULTILINE) is not None


def blocks_of(page: Path) -> Iterator[Block]:
    lines = page.read_text().splitlines()
    last: Block | None = None
    at = 0
    while at < len(lines):
        fence = lines[at].strip()
        at += 1
        if not fence.startswith("```"):
            continue
        start = at
        while lines[at].strip() != "```":
            at += 1
        if fence.startswith("```py"):
            continues = start > 1 and lines[start - 2].strip() == CONTINUES
            before = last.chain if continues and last is not None else ()
            last = Block(page, start + 1, dedent("\n".join(lines[start:at])) + "\n", before)
            yield last
        at += 1


def run(block: Block) -> str:
    """Run a block after those it continues, in one namespace and on one event loop; returns what it printed."""
    name = f"wakeful_docs_{block.page.stem}_{block.line}"
    module = sys.modules[name] = types.ModuleType(name)
    printed = ""
    try:
        with asyncio.Runner() as runner:
            for each in block.chain:
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    execute(each, module.__dict__, runner)
                printed = out.getvalue()
    finally:
        del sys.modules[name]
    return printed


def execute(block: Block, namespace: dict[str, Any], runner: asyncio.Runner) -> None:
    # Empty lines in front make the line numbers of a traceback those of the page.
    source = "\n" * (block.line - 1) + block.source
    code = compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(eval(code, namespace))
    else:
        exec(code, namespace)


def run_pytest(block: Block, folder: Path) -> None:
    """Run a block of tests in a folder of its own, where only the plugin that we ship is at hand."""
    (folder / "test_block.py").write_text("".join(each.source for each in block.chain))
    without = [f"-pno:{plugin}" for plugin in ("cacheprovider", "hypothesispytest", "xdist")]
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", *without, "test_block.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """Blocks about logging set it up for the whole process."""
    loggers = [logging.getLogger(), logging.getLogger("wakeful")]
    before = [(each.level, each.handlers[:]) for each in loggers]
    yield
    for each, (level, handlers) in zip(loggers, before, strict=True):
        each.setLevel(level)
        each.handlers[:] = handlers


@pytest.mark.parametrize("block", [pytest.param(b, id=b.id) for page in PAGES for b in blocks_of(page)])
def test_code_block_runs(block: Block, tmp_path: Path) -> None:
    if block.has_tests:
        run_pytest(block, tmp_path)
        return
    with contextlib.chdir(tmp_path):  # Some blocks open a store in the current directory.
        printed = run(block)
    if block.expected:
        assert printed.splitlines() == block.expected


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES + OTHERS])
def test_relative_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
def test_names_in_text_exist(page: Path) -> None:
    for name in re.findall(r"`(wakeful(?:\.\w+)+)", prose(page)):
        pkgutil.resolve_name(name)


def test_files_in_architecture_exist() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", (ROOT / "docs" / "architecture.md").read_text()))
    assert len(named) > 40
    assert [name for name in sorted(named) if not (ROOT / "src" / "wakeful" / name).exists()] == []


@pytest.mark.parametrize("index", ["README.md", "llms.txt"])
def test_index_lists_every_page(index: str) -> None:
    listed = re.findall(r"\]\((docs/[\w-]+\.md)", (ROOT / index).read_text())
    assert sorted(set(listed)) == sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
