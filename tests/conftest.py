import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

# Threads that wait leave the processors to the compiler beside them; before OpenMP is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from convt import isa, planner

TESTS = Path(__file__).parent
SOURCES = TESTS.parent / "convt"
MICRO_KERNELS = [TESTS / "micro_kernels.c", SOURCES / "levels.c", *SOURCES.glob("isa_*.c")]


def build_of(item):
    """The compiler and the optimisation that a test of micro-kernels wants; None of any other test."""
    build = item.callspec.params.get("build") if hasattr(item, "callspec") else None
    return build if isinstance(build, tuple) else None


def pytest_collection_modifyitems(items):
    """What waits for a compiler comes last."""
    items.sort(key=lambda item: build_of(item) is not None)


@pytest.fixture(scope="session", autouse=True)
def micro_kernels(request, tmp_path_factory):
    """Of each build that is tested the compiler, which runs beside the other tests (a minute or two), the program
    that it makes and the file of its messages."""
    folder = tmp_path_factory.mktemp("micro_kernels")
    flags = ["-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", f"-I{SOURCES}"]
    builds = {}
    for compiler, optimisation in filter(None, map(build_of, request.session.items)):
        if not shutil.which(compiler):
            continue  # whose test is skipped
        program = folder / (compiler + optimisation)
        messages = program.with_suffix(".txt")
        command = [compiler, optimisation, *flags, *MICRO_KERNELS, "-o", program]
        with messages.open("w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
        builds[compiler, optimisation] = process, program, messages
    yield builds
    for process, *_ in builds.values():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # a compiler has children
        process.wait()


@pytest.fixture(params=isa.available())
def each_isa(request, monkeypatch):
    """Runs the test once per instruction-set level that this machine can execute."""
    monkeypatch.setenv("CONVT_ISA", request.param)
    return request.param


@pytest.fixture(scope="module")
def threads_for_any_work():
    """Small cases must really run on as many threads as they ask for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "CYCLES_PER_THREAD", 1)
        yield
