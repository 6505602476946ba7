"""The driver: create the environments, run a session in wakeful's, and report its results."""

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks import envs
from benchmarks.workers.report import report
from benchmarks.workers.roster import CONTENDERS
from benchmarks.workers.setup import CALLS, STEPS


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    known = [one.name for one in CONTENDERS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    add = parser.add_argument
    add("--contender", default=",".join(known), metavar="NAMES", help=f"of {', '.join(known)}; default: all")
    add("--processes", default="1,2,4", metavar="NUMBERS", help="how many workers; default: 1,2,4")
    add("--runs", type=int, default=600, help="runs at full load, at most; default: 600")
    add("--dispatches", type=int, default=200, help="runs enqueued one at a time, at most; default: 200")
    add("--seconds", type=float, default=5, help="that each of those may take; default: 5")
    add("--idle", type=float, default=11, help="seconds for which an idle worker is watched; default: 11")
    add("--concurrency", type=int, default=32, help="runs that a worker has at once; default: 32")
    add("--grain", choices=("step", "call"), default="step", help=f"peers record {STEPS} steps, or {CALLS} calls")
    add("--profile", action="store_true", help="also where the time of one of our workers goes")
    add("--timeout", type=float, default=1800, metavar="SECONDS", help="for all of it; default: 1800")
    add("--json", type=Path, metavar="FILE", help="also write what was found here")
    arguments = parser.parse_args(argv)
    arguments.contender = [name.strip() for name in arguments.contender.split(",")]
    for name in arguments.contender:
        if name not in known:
            parser.error(f"unknown contender {name!r}; there are {', '.join(known)}")
    arguments.processes = [int(number) for number in arguments.processes.split(",")]
    return arguments


def _session(wanted: dict[str, Any], python: Path, timeout: float) -> dict[str, Any]:
    done = subprocess.run(
        [str(python), "-m", "benchmarks.workers.session"],
        input=json.dumps(wanted) + "\n",
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout,
        env=envs.worker_environ(),
        cwd=envs.ROOT,
        check=True,
    )
    return json.loads(envs.last_line(done.stdout))


def main(argv: list[str] | None = None) -> None:
    arguments = _arguments(argv)
    chosen = [one for one in CONTENDERS if one.name in arguments.contender]
    wanted: dict[str, Any] = {
        "contenders": arguments.contender,
        "processes": arguments.processes,
        "runs": arguments.runs,
        "dispatches": arguments.dispatches,
        "seconds": arguments.seconds,
        "idle": arguments.idle,
        "concurrency": arguments.concurrency,
        "steps": STEPS if arguments.grain == "step" else CALLS,
        "round_trips": 500,
        "profile": arguments.profile,
    }
    environments = {"wakeful-workers", *[one.environment for one in chosen]}
    pythons = {name: envs.ensure(name) for name in sorted(environments)}
    wanted["pythons"] = {name: str(path) for name, path in pythons.items()}
    out = _session(wanted, pythons["wakeful-workers"], arguments.timeout)
    if arguments.json:
        arguments.json.write_text(json.dumps(out, indent=2, ensure_ascii=False) + "\n")
    print(report(out, wanted["steps"]))


if __name__ == "__main__":
    main()
