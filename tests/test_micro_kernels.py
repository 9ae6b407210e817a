"""The micro-kernels alone, in C, with every compiler on the machine, also those that convt was not built with."""

import shutil
import subprocess

import pytest

from convt import isa

COMPILERS = [compiler for compiler in ("gcc", "clang") if shutil.which(compiler)]


def build(compiler, optimisation):
    """In every run of the tests one compiler at -O1: at -O2 it takes twice as long."""
    marks = [pytest.mark.skipif(compiler not in COMPILERS, reason=f"there is no {compiler}")]
    if (compiler, optimisation) != ((COMPILERS or ["gcc"])[0], "-O1"):
        marks.append(pytest.mark.heavy)
    return pytest.param((compiler, optimisation), marks=marks)


@pytest.mark.parametrize(
    "build", [build(compiler, optimisation) for optimisation in ("-O1", "-O2") for compiler in ("gcc", "clang")]
)
def test_every_micro_kernel_of_every_level(build, micro_kernels):
    compiler, program, messages = micro_kernels[build]
    assert compiler.wait(timeout=600) == 0, messages.read_text()
    result = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout
    for level in isa.available():
        assert level == "generic" or f"{level} double all_finite: ok" in result.stdout
