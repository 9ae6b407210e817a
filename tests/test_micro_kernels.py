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
OPTIMISATIONS = ["-O2", pytest.param("-O1", marks=pytest.mark.heavy)]


@pytest.fixture(scope="module")
def programs(request, tmp_path_factory):
    """By compiler, of one optimisation, being compiled at the same time: half a minute each."""
    folder = tmp_path_factory.mktemp("micro_kernels")

    def build(compiler):
        flags = [request.param, "-fno-math-errno", "-fno-trapping-math", f"-I{HERE.parent / 'convt'}"]
        subprocess.run(
            [compiler, *flags, HERE / "micro_kernels.c", "-o", folder / compiler], check=True, timeout=300
        )
        return folder / compiler

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {compiler: pool.submit(build, compiler) for compiler in COMPILERS}


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("programs", OPTIMISATIONS, indirect=True)
def test_every_micro_kernel_of_every_level(compiler, programs):
    program = programs[compiler].result()
    result = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout
    for level in isa.available():
        assert level == "generic" or f"{level} double finite: ok" in result.stdout
