"""The micro-kernels alone, in C, with every compiler on the machine, also those that convt was not built with."""

import shutil
import subprocess
from pathlib import Path

import pytest

from convt import isa

HERE = Path(__file__).parent
COMPILERS = [compiler for compiler in ("gcc", "clang") if shutil.which(compiler)]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("optimisation", ["-O1", "-O3"])
def test_every_micro_kernel_of_every_level(compiler, optimisation, tmp_path):
    program = tmp_path / "micro_kernels"
    source = HERE / "micro_kernels.c"
    flags = [optimisation, "-fno-math-errno", "-fno-trapping-math"]
    subprocess.run(
        [compiler, *flags, f"-I{HERE.parent / 'convt'}", source, "-o", program], check=True, timeout=300
    )
    result = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout
    for level in isa.available():
        assert level == "generic" or f"{level} double finite: ok" in result.stdout
