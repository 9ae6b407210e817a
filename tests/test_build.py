"""What is distributed, and builds that lack something, in a copy of the sources. Minutes: kernels are compiled."""

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


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A copy of what is built, and a compiler in front of the real one that knows no OpenMP.

    It does not optimise, in a sixth of the time, as it matters here only what is compiled.
    """
    tmp_path = tmp_path_factory.mktemp("sources")
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(
        ROOT / "convt", tmp_path / "convt", ignore=shutil.ignore_patterns("*.so", "_*.c", "__pycache__")
    )
    compiler = tmp_path / "cc"
    real = sysconfig.get_config_var("CC").split()[0]
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *-fopenmp*) echo "no OpenMP here" >&2; exit 1;; esac\nexec {real} "$@" -O0 -g0\n'
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


@pytest.fixture(scope="module")
def built(sources):
    """A wheel of an unpacked source distribution, unpacked: where, and what the build said."""
    made = setup(sources, "sdist")
    assert made.returncode == 0, made.stderr
    (archive,) = sources.glob("dist/*.tar.gz")
    shutil.unpack_archive(archive, sources / "unpacked", filter="data")
    (unpacked,) = (sources / "unpacked").iterdir()
    assert not list(unpacked.glob("convt/_*.c"))  # generated anew
    shutil.copy(sources / "cc", unpacked)
    result = setup(unpacked, "bdist_wheel", CONVT_ALLOW_SERIAL="1")
    assert result.returncode == 0, result.stderr
    (wheel,) = unpacked.glob("dist/*.whl")
    shutil.unpack_archive(wheel, sources / "installed", "zip")
    return sources / "installed", result.stdout + result.stderr


def test_source_distribution_builds_a_wheel(built):
    installed, _ = built
    assert len(list(installed.glob("convt/*.so"))) == len(list((ROOT / "convt").glob("*.pyx")))


def test_a_wheel_is_typed(built):
    typed = [path.name for path in (ROOT / "convt").iterdir() if path.suffix == ".pyi" or path.name == "py.typed"]
    assert len(typed) > 1 and set(typed) <= {path.name for path in (built[0] / "convt").iterdir()}


def test_serial_build_warns(built):
    assert "WITHOUT OPENMP" in built[1].upper()


def test_serial_build_computes(built):
    code = (
        "import numpy as np, convt; c = convt.show_config(); assert 'none' in c['openmp'];"
        "print(convt.conv_transpose(np.ones((1, 2, 9)), np.ones((2, 1, 1)), n_threads=4).sum())"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=built[0], capture_output=True, text=True)
    assert ran.stdout.split()[-1] == "18.0", ran.stderr


def test_refuses_a_serial_wheel_unless_asked(sources):
    refused = setup(sources, "bdist_wheel", "--dist-dir", "refused")
    assert refused.returncode != 0
    assert "WITHOUT OPENMP" in (refused.stdout + refused.stderr).upper()
    assert not list(sources.glob("refused/*"))


def test_refuses_a_wheel_without_vectors_unless_asked(sources):
    """By a compiler as old as gcc 11."""
    refused = setup(sources, "bdist_wheel", "--dist-dir", "refused", CFLAGS="-U__GNUC__ -D__GNUC__=11 -U__clang__")
    assert refused.returncode != 0
    assert "gcc 12 or newer" in refused.stdout + refused.stderr
    assert not list(sources.glob("refused/*"))


def test_builds_in_place_serially_unasked(sources):
    """With a compiler that leaves empty files, because only the decision is looked at here."""
    stub = sources / "stub"
    stub.write_text(
        '#!/bin/sh\ncase "$*" in *-fopenmp*) exit 1;; esac\n'
        'while [ "$1" ]; do [ "$1" = -o ] && : > "$2"; shift; done\n'
    )
    stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    made = setup(sources, "build_ext", "--inplace", CC=str(stub), LDSHARED=f"{stub} -shared")
    assert made.returncode == 0, made.stderr
    assert "WITHOUT OPENMP" in (made.stdout + made.stderr).upper()
