"""`python -m chaos --runs 3000 --seed 7`, in the folder `tests`: a long storm and its findings."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from pathlib import Path
from tempfile import mkdtemp

from .storm import Storm, ride


def main() -> int:
    """Run the storm and print its result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3000, help="how many runs are begun from outside")
    parser.add_argument("--seconds", type=float, default=240, help="over how long")
    parser.add_argument("--harm", type=int, default=120, help="how many kills, pauses, restarts and outages")
    parser.add_argument("--takeovers", type=int, default=100, help="fewer takeovers than these are a failure")
    parser.add_argument("--patience", type=float, default=300, help="how long it may take to settle afterwards")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    folder = Path(mkdtemp(prefix="wakeful-chaos-"))
    print(f"seed {given.seed}; the workers' output is in {folder}", flush=True)
    course = asyncio.run(ride(Storm(**vars(given)), folder, lambda line: print(line, flush=True)))
    print(course.table())
    for problem in course.findings.problems[:50]:
        print(f"\n{problem}")
    return 1 if course.findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())
