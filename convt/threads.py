"""How many threads a call may use, and why.

An explicit ``n_threads``, up to `MOST_THREADS`. Otherwise ``CONVT_NUM_THREADS``, or OpenMP's limit of the moment
(``OMP_NUM_THREADS``, threadpoolctl), but never more than the processors that affinity and the container's CPU
quota allow, nor than that. A child made by ``fork`` after convt was imported runs one thread: GNU's OpenMP
deadlocks there, because the child inherits the record of a pool whose threads it does not have.
"""

import os
from functools import cache

from convt._machine import openmp_limit, processors
from convt.arguments import integer, shown

# Where the system refuses a thread, OpenMP ends the process: no call asks for more than this.
MOST_THREADS = max(64, 4 * (os.cpu_count() or 1))

_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_after_fork)


def check(n_threads: object) -> int | None:
    """`n_threads` as given by a caller: None or a positive integer."""
    return None if n_threads is None else integer(n_threads, "n_threads", 1)


def resolve(n_threads: int | None) -> int:
    """Threads for a call made now."""
    return explain(n_threads)[0]


def explain(n_threads: int | None) -> tuple[int, str]:
    """Threads for a call made now, and the reason."""
    if _forked:
        return 1, "this process was forked"
    wanted, why = _by_default() if n_threads is None else (n_threads, "n_threads")
    return (wanted, why) if wanted <= MOST_THREADS else (MOST_THREADS, "more might be refused")


def _by_default() -> tuple[int, str]:
    """Threads for a call that names no number, and the reason."""
    wanted, why = _environment(os.environ.get("CONVT_NUM_THREADS"))
    if wanted is None:
        wanted, why = openmp_limit(), "OpenMP's limit"
    for limit, name in ((processors(), "processor affinity"), (cpu_quota(), "container CPU quota")):
        if limit and limit < wanted:
            wanted, why = limit, name
    return wanted, why


@cache
def _environment(text: str | None) -> tuple[int | None, str]:
    if not text:
        return None, ""
    if not text.isdecimal() or len(text) > 18 or int(text) < 1:
        raise ValueError(f"CONVT_NUM_THREADS: expected a positive integer of at most 18 digits, got {shown(text)}")
    return int(text), "CONVT_NUM_THREADS"


@cache
def cpu_quota(proc: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> int | None:
    """Processors that the control groups of this process grant, rounded up; None without a limit."""
    try:
        lines = [line.split(":", 2) for line in _read(proc).splitlines() if line.count(":") > 1]
    except OSError:
        return None
    limits = []
    for _, controllers, path in lines:
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = os.path.join(root, "cpu") if controllers else root
        # A container sees its own group as the root, whatever path it is told: look all the way up.
        groups = path.strip("/").split("/")
        for depth in range(len(groups), -1, -1):
            quota, period = _read_quota(os.path.join(mount, *groups[:depth]))
            if quota is not None and quota > 0 and period > 0:
                limits.append(-(-quota // period))
    return min(limits, default=None)


def _read(*path: str) -> str:
    """The text of a file. (pathlib would take a third of convt's import.)"""
    with open(os.path.join(*path), encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _read_quota(folder: str) -> tuple[int | None, int]:
    """Quota and period of one control group, version 2 or 1, in microseconds."""
    try:
        quota, period = _read(folder, "cpu.max").split()
        return (None if quota == "max" else int(quota)), int(period)
    except (OSError, ValueError):
        pass
    try:
        return int(_read(folder, "cpu.cfs_quota_us")), int(_read(folder, "cpu.cfs_period_us"))
    except (OSError, ValueError):
        return None, 0
