"""`module:runtime`: what is accepted, and what is said about the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cli_process import command

from wakeful import Runtime
from wakeful.cli.target import TargetError, load_runtime


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a module into an empty current directory and return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(source: str, name: str = "") -> str:
        name = name or f"written_{abs(hash((source, str(tmp_path))))}"
        (tmp_path / f"{name}.py").write_text(source)
        return name

    return write


def refusal(target: str) -> str:
    with pytest.raises(TargetError) as refused:
        load_runtime(target)
    return str(refused.value)


ONE = "from wakeful import Agent, Runtime, ScriptedModel\n"
MADE = f"{ONE}def make():\n    return Runtime([Agent('a', model=ScriptedModel(['hello']))])\n"


def test_runtime_is_found_in_module_of_current_directory(module) -> None:
    name = module(f"{MADE}runtime = make()")
    assert isinstance(load_runtime(f"{name}:runtime"), Runtime)


@pytest.mark.parametrize("name", ["runtime", "make"])
async def test_replaced_store_of_module_is_never_created(module, tmp_path: Path, name: str) -> None:
    source = MADE.replace("])\n", "], store='own.db')\n") + "runtime = make()"
    runtime = load_runtime(f"{module(source)}:{name}", str(tmp_path / "other.db"))
    assert runtime.store.path == tmp_path / "other.db"
    assert not (tmp_path / "own.db").exists()
    await runtime.close()


def test_function_without_arguments_is_called(module) -> None:
    name = module(MADE)
    assert load_runtime(f"{name}:make") is not load_runtime(f"{name}:make")


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("app", "write module:name, such as app:runtime"),
        ("app:", "write module:name, such as app:runtime"),
        (":runtime", "write module:name, such as app:runtime"),
        ("src/app.py", "write module:name, such as src.app:runtime"),
        ("app.py:runtime", "'app.py' is not a module's name; write it with dots: app:runtime"),
        ("./src/app.py:api", "write it with dots: src.app:api"),
    ],
)
def test_target_of_wrong_form_is_corrected(target, hint) -> None:
    assert hint in refusal(target)


@pytest.mark.parametrize(
    ("target", "missing"),
    [("nowhere:runtime", "'nowhere'"), ("nowhere.to.be:runtime", "'nowhere' for 'nowhere.to.be'")],
)
def test_missing_module_is_named(target, missing) -> None:
    assert refusal(target) == f"no module named {missing}, neither in the current directory nor installed"


def test_failed_import_inside_module_is_located(module) -> None:
    name = module("\nimport not_installed_anywhere\n")
    text = refusal(f"{name}:runtime")
    assert f"module '{name}' can't be imported: ModuleNotFoundError: No module named 'not_installed" in text
    assert f'{name}.py", line 2' in text
    assert "importlib" not in text


def test_error_in_module_is_located(module) -> None:
    name = module("def f():\n    return 1 / 0\nf()\n")
    text = refusal(f"{name}:runtime")
    assert "ZeroDivisionError: division by zero" in text
    assert "line 2, in f" in text


def test_syntax_error_is_located(module) -> None:
    assert "SyntaxError: '(' was never closed (" in refusal(f"{module('x = (')}:runtime")


def test_configuration_error_is_shown_without_traceback(module) -> None:
    name = module(f"{ONE}runtime = Runtime([Agent('a', model='who:what', delegates=['b'])])")
    text = refusal(f"{name}:runtime")
    assert "ConfigurationError: 2 problems:" in text
    assert "delegate 'b' is not an agent of this runtime" in text
    assert "File" not in text


def test_missing_name_lists_runtimes_and_other_names(module) -> None:
    name = module(f"{MADE}first, second, limit = make(), make(), 3")
    assert refusal(f"{name}:third") == (
        f"module '{name}' has no 'third'; runtimes there: first, second; other names: limit, make"
    )


def test_long_list_of_names_is_cut_off(module) -> None:
    name = module("\n".join(f"name_{n:02} = {n}" for n in range(25)))
    text = refusal(f"{name}:runtime")
    assert "runtimes there: none" in text
    assert text.endswith("name_19 and 5 more")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("other", "sample:other is of type int, not a Runtime; runtimes there: runtime"),
        ("Guard", "sample:Guard is the class Guard, not a Runtime"),
        ("nothing", "sample:nothing() is None, not a Runtime"),
        ("needy", "sample:needy is a function that needs setting; one without arguments"),
        ("eventual", "sample:eventual() is a coroutine; the function must not be async"),
        ("misconfigured", "sample:misconfigured() failed: ConfigurationError: agent 'lost': delegate 'nobody'"),
    ],
)
def test_non_runtime_target_is_described(wakeful, name, what) -> None:
    result = wakeful("run", f"sample:{name}", "poet", "Hello")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert f"error: {what}" in result.stderr


def test_error_in_function_is_located() -> None:
    done = command("-m", "wakeful.cli", "chat", "sample:buggy")
    assert done.returncode == 2
    assert "error: sample:buggy() failed: KeyError: 'runtime'" in done.stderr
    assert "in buggy" in done.stderr
    assert "Traceback" not in done.stderr


def test_module_calling_exit_is_no_success(module) -> None:
    name = module("import sys\nsys.exit(0)\n")
    assert f"module '{name}' can't be imported: SystemExit: 0" in refusal(f"{name}:runtime")
