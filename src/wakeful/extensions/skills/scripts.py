"""Running the scripts of skills: a protocol, and processes with a scrubbed environment."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from ...types.base import Data
from .package import SkillProblem

__all__ = ["ScriptResult", "ScriptRunner", "Subprocess"]

MAX_ARGUMENTS = 64
MAX_ARGUMENT = 8 * 1024
MAX_FOLDER = 20 * 1024 * 1024

_INTERPRETERS = {".py": ("python3", "-I"), ".sh": ("sh",), ".js": ("node",)}


class ScriptResult(Data):
    """The result of a script: its exit code, None if it ran out of time, and the ends of its output."""

    exit_code: int | None
    stdout: str
    stderr: str


class ScriptRunner(Protocol):
    """Runs a script of a skill."""

    async def run(self, folder: Path, script: str, arguments: Sequence[str]) -> ScriptResult:
        """Run the script at a path below the skill's folder; raises `SkillProblem` if it can't be run."""
        ...


class Subprocess:
    """Runs scripts as processes of this machine, in a copy of the skill's folder that is deleted afterwards.

    A script gets PATH and the variables of `env`, nothing else of the environment, and no input. Its group of
    processes is killed after `seconds`, or when the call is cancelled; `cpu` seconds and files of `megabytes` are
    its limits, and `output` bytes of its output are kept. This is no sandbox: a script has the network and the
    files that the user of the process has. Give your own `ScriptRunner` for one.
    """

    def __init__(
        self,
        *,
        env: Mapping[str, str] | None = None,
        seconds: float = 60,
        cpu: int = 60,
        megabytes: int = 64,
        output: int = 32 * 1024,
    ) -> None:
        self._env = dict(env or {})
        self._seconds, self._cpu, self._megabytes, self._output = seconds, cpu, megabytes, output

    async def run(self, folder: Path, script: str, arguments: Sequence[str]) -> ScriptResult:
        """Run a script; what it started is killed with it."""
        _check_arguments(arguments)
        interpreter = _INTERPRETERS.get(Path(script).suffix)
        if interpreter is None:
            raise SkillProblem(
                f"{script!r:.120} has no known interpreter; scripts end in {', '.join(_INTERPRETERS)}"
            )
        if shutil.which(interpreter[0]) is None:
            raise SkillProblem(f"{script!r:.120} needs {interpreter[0]}, which isn't installed here")
        with TemporaryDirectory(prefix="wakeful-skill-") as home:
            place = Path(home, "skill")
            await asyncio.to_thread(_copy, folder, place)
            limits = f'ulimit -t {self._cpu}; ulimit -f {self._megabytes * 1024}; ulimit -c 0; exec "$@"'
            process = await asyncio.create_subprocess_exec(
                *("sh", "-c", limits, "sh", *interpreter, script, *arguments),
                cwd=place,
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "LANG": "C.UTF-8", **self._env},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
            return await self._finish(process)

    async def _finish(self, process: asyncio.subprocess.Process) -> ScriptResult:
        streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
        readers = [asyncio.create_task(self._read(stream)) for stream in streams]
        is_late = False
        try:
            await asyncio.wait_for(process.wait(), self._seconds)
        except TimeoutError:
            is_late = True
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # Its children, too, which may hold the pipes.
            await process.wait()
            texts = await asyncio.gather(*readers)
        return ScriptResult(None if is_late else process.returncode, *texts)

    async def _read(self, stream: asyncio.StreamReader) -> str:
        """The end of a stream, which is read whole so that its writer never waits."""
        kept = b""
        while data := await stream.read(64 * 1024):
            kept = (kept + data)[-self._output :]
        return kept.decode(errors="replace")


def _check_arguments(arguments: Sequence[str]) -> None:
    if len(arguments) > MAX_ARGUMENTS:
        raise SkillProblem(f"a script takes {MAX_ARGUMENTS} arguments at most, not {len(arguments)}")
    for argument in arguments:
        if "\0" in argument or len(argument.encode(errors="replace")) > MAX_ARGUMENT:
            raise SkillProblem(f"an argument has at most {MAX_ARGUMENT:,} bytes and no NUL: {argument!r:.80}")


def _copy(folder: Path, place: Path) -> None:
    """Copy the regular files of a folder; links, devices and pipes are left out."""
    size = 0
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not Path(parent, name).is_symlink()]
        target = place / Path(parent).relative_to(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name in files:
            path = Path(parent, name)
            if path.is_symlink() or not path.is_file():
                continue
            size += path.stat().st_size
            if size > MAX_FOLDER:
                raise SkillProblem(f"the skill has more than {MAX_FOLDER:,} bytes of files")
            shutil.copy(path, target / name)
