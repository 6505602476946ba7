"""Refuse names and docstrings that break the house style. Part of `make lint`.

Usage: python tools/lint_style.py
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "wakeful"

TEST_NAME = 60
# Names of tests for acceptance rows carry the row.
ROW_NAME = 70

# Riddles that readers stumbled over; the glossary has the words to use.
BANNED = {
    "beside",
    "board",
    "boarding",
    "go_on",
    "hear",
    "hear_back",
    "heard",
    "heed",
    "held",
    "known",
    "more",
    "patience",
    "place",
    "pump",
    "resting",
    "said",
    "soured",
    "still",
    "taking",
    "told",
    "twice",
    "woken_up",
}
# The same for variables, parameters and attributes, where the other words of the list are common.
BANNED_VALUES = {"anew", "board", "go_on", "hear", "heard", "heed", "patience", "pump", "said", "soured", "told"}
NOUNS_IN_ING = {
    "docstring",
    "fitting",
    "listing",
    "lowering",
    "messaging",
    "pending",
    "serving",
    "testing",
    "wording",
}
NO_NOUN = re.compile(r"(What|Who|Whoever|Whatever|One that|Those (that|who|which))\b")


def problems_of_source(path: Path) -> Iterator[str]:
    """Yield what is wrong with the names and docstrings of a source file."""
    where = path.relative_to(ROOT)
    if path.stem.startswith("_") and not path.stem.startswith("__"):
        yield f"{where}: a module has a plain name, without an underscore"
    if path.stem.endswith("ing") and path.stem not in NOUNS_IN_ING:
        yield f"{where}: a module is named by a noun, not by a gerund"
    tree = ast.parse(path.read_text())
    for line, name in assigned_names(tree):
        if name.strip("_").lower() in BANNED_VALUES:
            yield f"{where}:{line}: {name} is a riddle; use a word of the glossary"
    for node in ast.walk(tree):
        is_named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if is_named and node.name.strip("_").lower() in BANNED:
            yield f"{where}:{node.lineno}: {node.name} is a riddle; use a word of the glossary"
    yield from problems_of_docstrings(path, tree)


def problems_of_docstrings(path: Path, tree: ast.AST) -> Iterator[str]:
    """Yield the docstrings that start with a relative clause."""
    for node in ast.walk(tree):
        has_docstring = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
        if has_docstring and NO_NOUN.match(ast.get_docstring(node) or ""):
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
            yield f"{where}: the docstring starts without its noun"


def assigned_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the names of parameters, variables and attributes where they are bound."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def problems_of_tests(path: Path) -> Iterator[str]:
    """Yield the test names that are too long, and what is wrong with the docstrings, of a file of the tests."""
    tree = ast.parse(path.read_text())
    yield from problems_of_docstrings(path, tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            most = ROW_NAME if node.name.startswith("test_seed_") else TEST_NAME
            if len(node.name) > most:
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield f"{where}: {node.name} has {len(node.name)} characters, not {most}"


def main() -> None:
    sources, tests = sorted(SOURCE.rglob("*.py")), sorted((ROOT / "tests").rglob("*.py"))
    found = [problem for path in sources for problem in problems_of_source(path)]
    found += [problem for path in tests for problem in problems_of_tests(path)]
    for problem in found:
        sys.stdout.write(f"{problem}\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
