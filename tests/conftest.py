import subprocess
from pathlib import Path

import pytest

from convt import isa, plan

MICRO_KERNELS = Path(__file__).parent / "micro_kernels.c"


def builds_micro_kernels(item):
    return item.path.stem == f"test_{MICRO_KERNELS.stem}"


def pytest_collection_modifyitems(items):
    """What waits for a compiler comes last."""
    items.sort(key=builds_micro_kernels)


@pytest.fixture(scope="session", autouse=True)
def micro_kernels(request, tmp_path_factory):
    """Of each build that is tested the compiler, which runs beside the other tests (a minute or two), and the
    program that it makes."""
    folder = tmp_path_factory.mktemp("micro_kernels")
    flags = ["-fno-math-errno", "-fno-trapping-math", f"-I{MICRO_KERNELS.parent.parent / 'convt'}"]
    builds = {}
    for item in filter(builds_micro_kernels, request.session.items):
        compiler, optimisation = build = item.callspec.params["build"]
        program = folder / (compiler + optimisation)
        builds[build] = subprocess.Popen([compiler, optimisation, *flags, MICRO_KERNELS, "-o", program]), program
    yield builds
    for compiler, _ in builds.values():
        compiler.kill()
        compiler.wait()


@pytest.fixture(params=isa.available())
def each_isa(request, monkeypatch):
    """Runs the test once per instruction-set level that this machine can execute."""
    monkeypatch.setenv("CONVT_ISA", request.param)
    return request.param


@pytest.fixture(scope="module")
def threads_for_any_work():
    """Small cases must really run on as many threads as they ask for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MACS_PER_THREAD", 1)
        yield
