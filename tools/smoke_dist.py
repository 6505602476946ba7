"""Install the built wheel into a clean environment and run an agent with it.

Usage: python tools/smoke_dist.py dist/
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

PROGRAM = """
from wakeful import Agent, Runtime, ScriptedModel, call, tool

@tool
async def weather(city: str) -> str:
    "Today's weather in a city."
    return f"Sunny in {city}"

model = ScriptedModel([call("weather", city="Paris"), "It is sunny in Paris."])
runtime = Runtime([Agent("assistant", model=model, tools=[weather])], store="smoke.db")
print(runtime.run_sync("assistant", "Weather in Paris?").text)
"""

CONSOLE = "wakeful/server/console/assets/index.html"


def only(folder: Path, pattern: str) -> Path:
    """Return the one file that matches a pattern, or exit."""
    found = list(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"expected one {pattern} in {folder}, found {len(found)}: run `make dist` on a clean dist/")
    return found[0]


def check_contents(wheel: Path, sdist: Path) -> None:
    """Check that type information, data files and the console are in the wheel, and the sources in the sdist."""
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = {"wakeful/__init__.py", "wakeful/py.typed", "wakeful/models/shared/facts.json", CONSOLE}
    if missing := needed - names:
        sys.exit(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    with tarfile.open(sdist) as archive:
        for needed in ("/src/wakeful/__init__.py", f"/src/{CONSOLE}"):
            if not any(name.endswith(needed) for name in archive.getnames()):
                sys.exit(f"{sdist.name} lacks {needed}")


def run(*command: str, cwd: str) -> str:
    """Run a command and return its output; exit with its error if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command[:4])} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    wheel, sdist = only(folder, "*.whl"), only(folder, "*.tar.gz")
    check_contents(wheel, sdist)
    with tempfile.TemporaryDirectory() as clean:
        venv.create(clean, with_pip=True)
        python = str(Path(clean, "bin", "python"))
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel), cwd=clean)
        if (answer := run(python, "-c", PROGRAM, cwd=clean).strip()) != "It is sunny in Paris.":
            sys.exit(f"the smoke test answered {answer!r}")
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[cli]", cwd=clean)
        run(str(Path(clean, "bin", "wakeful")), "--help", cwd=clean)
    sys.stdout.write(f"{wheel.name} and {sdist.name}: installed into a clean environment, and an agent ran\n")


if __name__ == "__main__":
    main()
