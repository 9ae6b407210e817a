"""The build without OpenMP, in a copy of the sources. Minutes long: it compiles the kernels."""

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[1]


@pytest.fixture
def sources(tmp_path):
    """A copy of what is built, and a compiler in front of the real one that knows no OpenMP."""
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(
        ROOT / "convt", tmp_path / "convt", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    )
    compiler = tmp_path / "cc"
    real = sysconfig.get_config_var("CC").split()[0]
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *-fopenmp*) echo "no OpenMP here" >&2; exit 1;; esac\nexec {real} "$@"\n'
    )
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def setup(sources, *command, **environment):
    return subprocess.run(
        [sys.executable, "setup.py", *command],
        cwd=sources,
        env={**os.environ, "CC": str(sources / "cc"), "LDSHARED": f"{sources / 'cc'} -shared", **environment},
        capture_output=True,
        text=True,
    )


def test_source_distribution_builds(sources):
    made = setup(sources, "sdist")
    assert made.returncode == 0, made.stderr
    (archive,) = sources.glob("dist/*.tar.gz")
    shutil.unpack_archive(archive, sources / "unpacked", filter="data")
    (unpacked,) = (sources / "unpacked").iterdir()
    assert not list(unpacked.glob("convt/*.c"))  # generated anew
    (sources / "cc").rename(unpacked / "cc")
    built = setup(unpacked, "build_ext", "--inplace")
    assert built.returncode == 0, built.stderr
    assert len(list(unpacked.glob("convt/*.so"))) == len(list(sources.glob("convt/*.pyx")))


def test_builds_serially_with_a_warning_and_computes(sources):
    built = setup(sources, "build_ext", "--inplace")
    assert built.returncode == 0, built.stderr
    assert "WITHOUT OPENMP" in (built.stdout + built.stderr).upper()
    code = (
        "import numpy as np, convt; c = convt.show_config(); assert 'none' in c['openmp'];"
        "print(convt.conv_transpose(np.ones((1, 2, 9)), np.ones((2, 1, 1)), n_threads=4).sum())"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=sources, capture_output=True, text=True)
    assert ran.stdout.split()[-1] == "18.0", ran.stderr


def test_refuses_a_wheel(sources):
    built = setup(sources, "bdist_wheel")
    assert built.returncode != 0
    assert "WITHOUT OPENMP" in (built.stdout + built.stderr).upper()
    assert not list(sources.glob("dist/*.whl"))


def test_builds_a_serial_wheel_on_demand(sources):
    built = setup(sources, "bdist_wheel", CONVT_ALLOW_SERIAL="1")
    assert built.returncode == 0, built.stderr
    assert list(sources.glob("dist/*.whl"))
