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
OPTIMISATIONS = ["-O1", "-O3"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """By compiler and optimisation, being compiled as many at once as there are processors: 25 s each."""
    folder = tmp_path_factory.mktemp("micro_kernels")

    def build(compiler, optimisation):
        program = folder / (compiler + optimisation)
        flags = [optimisation, "-fno-math-errno", "-fno-trapping-math", f"-I{HERE.parent / 'convt'}"]
        subprocess.run([compiler, *flags, HERE / "micro_kernels.c", "-o", program], check=True, timeout=300)
        return program

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {(c, o): pool.submit(build, c, o) for c in COMPILERS for o in OPTIMISATIONS}


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("optimisation", OPTIMISATIONS)
def test_every_micro_kernel_of_every_level(compiler, optimisation, programs):
    program = programs[compiler, optimisation].result()
    result = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout
    for level in isa.available():
        assert level == "generic" or f"{level} double finite: ok" in result.stdout
