"""The micro-kernels alone, in C, with every compiler on the machine, also those that convt was not built with."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from convt import isa

HERE = Path(__file__).parent
COMPILERS = [compiler for compiler in ("gcc", "clang") if shutil.which(compiler)]
# The first one in every run of the tests: at -O2 it takes twice as long.
BUILDS = [(compiler, optimisation) for optimisation in ("-O1", "-O2") for compiler in COMPILERS]


@pytest.fixture(scope="module")
def programs(request, tmp_path_factory):
    """Of all builds that are tested, which are made at the same time: a minute or two each."""
    folder = tmp_path_factory.mktemp("micro_kernels")

    def build(compiler, optimisation):
        program = folder / (compiler + optimisation)
        flags = [optimisation, "-fno-math-errno", "-fno-trapping-math", f"-I{HERE.parent / 'convt'}"]
        subprocess.run([compiler, *flags, HERE / "micro_kernels.c", "-o", program], check=True, timeout=600)
        return program

    items = (item for item in request.session.items if item.module is request.module)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {item.callspec.params["build"]: pool.submit(build, *item.callspec.params["build"]) for item in items}


@pytest.mark.parametrize(
    "build", [*BUILDS[:1], *(pytest.param(build, marks=pytest.mark.heavy) for build in BUILDS[1:])]
)
def test_every_micro_kernel_of_every_level(build, programs):
    program = programs[build].result()
    result = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout
    for level in isa.available():
        assert level == "generic" or f"{level} double finite: ok" in result.stdout
