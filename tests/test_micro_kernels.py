"""The micro-kernels alone, in C, with every compiler on the machine, also those that convt was not built with."""

import shutil
import subprocess

import pytest

from convt import isa

COMPILERS = [compiler for compiler in ("gcc", "clang") if shutil.which(compiler)]
# The first one in every run of the tests: at -O2 it takes twice as long.
BUILDS = [(compiler, optimisation) for optimisation in ("-O1", "-O2") for compiler in COMPILERS]


@pytest.mark.parametrize(
    "build", [*BUILDS[:1], *(pytest.param(build, marks=pytest.mark.heavy) for build in BUILDS[1:])]
)
def test_every_micro_kernel_of_every_level(build, micro_kernels):
    compiler, program, messages = micro_kernels[build]
    assert compiler.wait(timeout=600) == 0, messages.read_text()
    result = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout
    for level in isa.available():
        assert level == "generic" or f"{level} double all_finite: ok" in result.stdout
