"""A disk that takes longer to sync than this machine's. What a group of commits saves is most of all syncs."""

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks import _envs

# The call returns once the data is on the disk, and so much later.
_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void wait_on(void) {
    long microseconds = atol(getenv("BENCHMARKS_SYNC_DELAY"));
    struct timespec pause = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&pause, NULL);
}

int fsync(int fd) {
    int done = ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
    wait_on();
    return done;
}

int fdatasync(int fd) {
    int done = ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
    wait_on();
    return done;
}
"""


class NoDelay(Exception):
    """This machine can't make syncs take longer."""


def delayed(microseconds: int) -> dict[str, str]:
    """The variables with which a process and all that it starts wait so much longer for each sync."""
    compiler = shutil.which("cc")
    if compiler is None or not hasattr(os, "fdatasync"):
        raise NoDelay("a C compiler (cc) and a Linux system are needed to make syncs take longer")
    library = _envs.ENVS / "syncs.so"
    library.parent.mkdir(exist_ok=True)
    source = library.with_suffix(".c")
    source.write_text(_SOURCE)
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoDelay(f"{Path(compiler).name} failed: {_envs.last_line(done.stderr)[:300]}")
    return {"LD_PRELOAD": str(library), "BENCHMARKS_SYNC_DELAY": str(microseconds)}
