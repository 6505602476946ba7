"""Simulation of a disk with slower fsyncs, which are what group commit saves most."""

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks import envs

# Each call syncs, then sleeps.
_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void sleep_on(void) {
    long microseconds = atol(getenv("BENCHMARKS_SYNC_DELAY"));
    struct timespec pause = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&pause, NULL);
}

int fsync(int fd) {
    int done = ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
    sleep_on();
    return done;
}

int fdatasync(int fd) {
    int done = ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
    sleep_on();
    return done;
}
"""


class NoDelay(Exception):
    """This machine can't slow down fsyncs."""


def delay_environ(microseconds: int) -> dict[str, str]:
    """The environment variables that slow down each fsync of a process and its children."""
    compiler = shutil.which("cc")
    if compiler is None or not hasattr(os, "fdatasync"):
        raise NoDelay("a C compiler (cc) and a Linux system are needed to slow down fsyncs")
    library = envs.ENVS / "syncs.so"
    library.parent.mkdir(exist_ok=True)
    source = library.with_suffix(".c")
    source.write_text(_SOURCE)
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoDelay(f"{Path(compiler).name} failed: {envs.last_line(done.stderr)[:300]}")
    return {"LD_PRELOAD": str(library), "BENCHMARKS_SYNC_DELAY": str(microseconds)}
