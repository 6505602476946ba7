"""Virtual environments of the contenders."""

import ast
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

OURS = ("wakeful", "wakeful-sqlite", "wakeful-postgres", "wakeful-models", "wakeful-protocols")
# Environments with this source tree installed, and its extras.
OWN = {
    "wakeful": "",
    "wakeful-models": "[openai,anthropic]",
    "wakeful-protocols": "[server]",
    "wakeful-stores": "[postgres]",
    "wakeful-workers": "[cli,nats,postgres]",
}
FLOORS = ("floor-msgspec", "floor-json", "floor-sqlite", "floor-postgres")
DATABASES = ("sqlite", "postgres")

# Tracing and telemetry are off for every contender.
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
    """An environment could not be created."""


def last_line(text: str) -> str:
    """The last line of a program's output: its result or its error."""
    return text.strip().rpartition("\n")[2]


def contenders() -> list[str]:
    """The names of all contenders: floors, wakeful, then the peers."""
    found = {path.stem.replace("_", "-") for path in CONTENDERS.glob("*.py") if path.stem[0] != "_"}
    first = [name for name in (*FLOORS, *OURS) if name in found]
    return first + sorted(found.difference(first))


def entries(name: str) -> set[str]:
    """The names that a contender's file defines, which determine its measures.

    The file is parsed, as importing it needs its environment.
    """
    found: set[str] = set()
    for node in ast.parse((CONTENDERS / f"{name.replace('-', '_')}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return found


def database(name: str) -> str:
    """The kind of database of a contender, or an empty string."""
    last = name.rpartition("-")[2]
    return last if last in DATABASES else ""


def environment(name: str) -> str:
    """The name of a contender's environment; a library's contenders on databases share one."""
    if not database(name):
        return name
    base = name.rpartition("-")[0]
    stores = f"{base}-stores"
    return stores if (REQUIREMENTS / f"{stores}.txt").exists() else base


def worker_environ() -> dict[str, str]:
    """The environment variables of a contender's process."""
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
    """The packages of an environment, and a key that changes with them."""
    path, own = REQUIREMENTS / f"{name}.txt", name in OWN
    if not path.exists() and not own:
        raise EnvError(f"no requirements/{path.name}")
    text = path.read_text() if path.exists() else ""
    packages = [line for line in text.splitlines() if line and not line.startswith("#")]
    if own:
        packages += ["-e", f"{ROOT}{OWN[name]}"]
        text += f"{ROOT}\n{(ROOT / 'pyproject.toml').read_text()}"
    return packages, text


def ensure(name: str) -> Path:
    """The interpreter of a contender's environment, which is recreated when its requirements change."""
    name = environment(name)
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
