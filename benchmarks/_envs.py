"""Makes and keeps an environment of its own for each contender."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
ENVS = HERE / ".envs"
REQUIREMENTS = HERE / "requirements"
CONTENDERS = HERE / "contenders"

OURS = "wakeful"
FLOORS = ("floor-msgspec", "floor-json")

# Tracing and telemetry off for everyone: what is measured is the library, not its exporters.
QUIET = {
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": "false",
    "AGNO_TELEMETRY": "false",
    "ENABLE_INSTRUMENTATION": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}


INSTALL_TIMEOUT_S = 900


class EnvError(Exception):
    """An environment could not be made."""


def last_line(text: str) -> str:
    """The last line of a program's output: its result, or what went wrong."""
    return text.strip().rpartition("\n")[2]


def contenders() -> list[str]:
    """The names of all contenders: floors, ours, then the peers."""
    found = {path.stem.replace("_", "-") for path in CONTENDERS.glob("*.py") if path.stem != "__init__"}
    first = [name for name in (*FLOORS, OURS) if name in found]
    return first + sorted(found.difference(first))


def worker_environ() -> dict[str, str]:
    """The variables a contender's process runs with."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return {**environ, **QUIET, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=INSTALL_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise EnvError(f"not made within {INSTALL_TIMEOUT_S} s") from None
    if done.returncode:
        raise EnvError(last_line(done.stdout)[:300] or f"exit status {done.returncode}")


def _wanted(name: str) -> tuple[list[str], str]:
    """What to install for a contender, and a text that changes whenever that does."""
    if name == OURS:
        return ["-e", str(ROOT)], (ROOT / "pyproject.toml").read_text()
    path = REQUIREMENTS / f"{name}.txt"
    if not path.exists():
        raise EnvError(f"no requirements/{path.name}")
    text = path.read_text()
    packages = [line for line in text.splitlines() if line and not line.startswith("#")]
    return packages, text


def ensure(name: str) -> Path:
    """The interpreter of a contender's environment, made anew where its requirements have changed."""
    packages, text = _wanted(name)
    home = ENVS / name
    python, stamp = home / "bin" / "python", home / "installed.txt"
    text = f"{sys.version}\n{text}"
    if python.exists() and stamp.exists() and stamp.read_text() == text:
        return python
    shutil.rmtree(home, ignore_errors=True)
    print(f"making the environment of {name} ...", file=sys.stderr, flush=True)
    uv = shutil.which("uv")
    if uv:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(home)])
        install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    else:
        _run([sys.executable, "-m", "venv", str(home)])
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if packages:
        _run([*install, *packages])
    stamp.write_text(text)
    return python
