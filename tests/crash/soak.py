"""Random kills: `python -m crash.soak --kills 300 --seed 7 --store both`, in the folder `tests`.

Each round has its own store. One or two processes at a time run the scenario, and each is killed at a random
moment; the last process runs to its end, and the store is checked. A problem is printed with its round's seed;
pass it as `--seed` to repeat that round first.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from threading import Event

from msgspec import Struct

from postgres_server import server
from wakeful.testing.crash import Child, Launchers, ProcessStarted, Sites, open_sites, read_journal, verify_site

from . import office

SCENARIO = f"{office.__name__}:work"
TIMEOUT = 60.0
# The approximate duration of the scenario in seconds, over which kills are spread.
SPANS = {"sqlite": 0.4, "postgres": 0.8}


class Round(Struct):
    """The result of one round."""

    store: str
    seed: int
    kills: int = 0
    ended: int = 0
    problems: list[str] = []


def play(sites: Sites, launchers: Launchers, seed: int, keep: Path | None = None) -> Round:
    """Kill some processes at random, let the last one run to its end, and check the store."""
    dice, result = random.Random(seed), Round(sites.kind, seed)
    with sites.new() as (workdir, site):
        for _ in range(dice.randint(1, 6)):
            children = [launchers.start(SCENARIO, workdir, site) for _ in range(dice.choice((1, 1, 2)))]
            while sum(isinstance(entry, ProcessStarted) for entry in read_journal(workdir / "journal")) == 0:
                time.sleep(0.002)
            for child in children:
                # Not always both at once: one may have to take over the other's runs.
                if child.has_exited(dice.uniform(0, SPANS[sites.kind])) and child.code != 0:
                    result.problems.append(child.wait(0) or "")
                    return result
                result.ended += child.code == 0
                result.kills += child.code is None
                child.kill()
            sites.expire_leases(site)
        last: Child = launchers.start(SCENARIO, workdir, site)
        problem = last.wait(TIMEOUT)
        result.problems += [problem] if problem else verify_site(workdir, site, office.check)
        if result.problems and keep is not None:
            shutil.copytree(workdir, keep / f"{sites.kind}-{seed}", dirs_exist_ok=True)
    return result


def soak(
    stores: list[str], kills: int, seed: int, seconds: float, processes: int, keep: Path | None
) -> list[Round]:
    """Run rounds until the kills or the time are used up; stops at the first problem."""
    rounds: list[Round] = []
    stop, dice, until = Event(), random.Random(seed), time.monotonic() + seconds
    with ExitStack() as stack:
        sites = [stack.enter_context(open_sites(store)) for store in stores]
        launchers = stack.enter_context(Launchers())
        pool = stack.enter_context(ThreadPoolExecutor(processes))

        def one(number: int, round_seed: int) -> Round | None:
            enough = sum(done.kills for done in rounds) >= kills or time.monotonic() > until
            if stop.is_set() or enough:
                return None
            return play(sites[number % len(sites)], launchers, round_seed, keep)

        # The first round has the given seed, so that a failed round can be repeated.
        seeds = [seed, *[dice.randrange(1 << 32) for _ in range(kills)]]
        for done in as_completed([pool.submit(one, number, its) for number, its in enumerate(seeds)]):
            if (result := done.result()) is None:
                continue
            rounds.append(result)
            if result.problems:
                stop.set()
            print(f"\r{sum(r.kills for r in rounds)} kills, {len(rounds)} rounds", end="", flush=True)
    print()
    return rounds


def summary(rounds: list[Round]) -> str:
    """Format the rounds as a table by store."""
    lines = [f"{'store':<10}{'rounds':>8}{'kills':>8}{'ended first':>13}{'problems':>10}"]
    for store in dict.fromkeys(each.store for each in rounds):
        own = [each for each in rounds if each.store == store]
        counts = len(own), sum(r.kills for r in own), sum(r.ended for r in own), sum(len(r.problems) for r in own)
        lines.append(f"{store:<10}{counts[0]:>8}{counts[1]:>8}{counts[2]:>13}{counts[3]:>10}")
    return "\n".join(lines)


def main() -> int:
    """Run the soak test and print its summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--seconds", type=float, default=240, help="start no round after this time")
    parser.add_argument("--processes", type=int, default=max(2, os.cpu_count() or 2))
    parser.add_argument("--keep", type=Path, help="a folder for the files of failed rounds")
    given = parser.parse_args()
    names = ["sqlite", "postgres"] if given.store == "both" else [given.store]
    stores = [server().url() if name == "postgres" else name for name in names]
    print(f"seed {given.seed}")
    rounds = soak(stores, given.kills, given.seed, given.seconds, given.processes, given.keep)
    print(summary(rounds))
    for each in rounds:
        for problem in each.problems:
            print(f"\n{each.store}, --seed {each.seed}: {problem}")
    return 1 if any(each.problems for each in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
