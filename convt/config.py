"""What this installation is and what it would use."""

import sys

import numpy as np

from convt import isa, threads
from convt._machine import build_info
from convt.report import Report
from convt.version import __version__


def show_config() -> Report:
    """Print and return the facts that a bug report needs.

    Returns
    -------
    Report
        ISA level chosen and those available, compiler, OpenMP, threads and why, loaded thread pools, versions.

    Raises
    ------
    ValueError
        If ``CONVT_ISA`` or ``CONVT_NUM_THREADS`` is set to something unusable.
    """
    import threadpoolctl  # 10 ms that a plain import of convt does not pay

    build = build_info()
    count, reason = threads.explain(None)
    pools = [
        f"{pool['internal_api']} {pool.get('version') or ''} ({pool['num_threads']} threads)".replace("  ", " ")
        for pool in threadpoolctl.threadpool_info()
    ]
    report = Report(
        convt=__version__,
        isa=isa.choose(),
        isa_available=", ".join(isa.available()),
        compiler=build["compiler"],
        openmp=str(build["openmp"]) if build["openmp"] else "none: one thread only",
        threads=count,
        threads_because=reason,
        thread_pools="; ".join(pools) or "none",
        numpy=np.__version__,
        python=sys.version.split()[0],
        platform=sys.platform,
    )
    print(report)
    return report
