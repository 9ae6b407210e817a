"""Build of the compiled kernels. Everything else about the package stands in pyproject.toml."""

import errno
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# No -ffast-math: gcc before 13 would then switch subnormals off for the whole process that loads the library.
# No -march: the build must run on every processor of the architecture.
# A multiply-add is one rounding at every level of vectors, whatever -std= the caller's flags have.
# Cython does not check what pointers micro-kernels are given, which `kernels_t` of _levels.pxd has as void: the C
# compiler does.
FLAGS = [
    "-O3",
    "-g0",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Werror=incompatible-pointer-types",
]

# Here, not at the head of modules, as those do not hold for the inline functions of .pxd files. Indices lie inside
# and do not count from the end, division cuts towards zero, and divisors are not 0.
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
}

PROBE = r"""
#include <omp.h>
int main(void) {
    int threads = 0;
    #pragma omp parallel num_threads(2) reduction(+ : threads)
    threads += 1;
    return threads < 1;
}
"""

OPENMP = ["-fopenmp"]  # to compile and to link

WITHOUT_OPENMP = """
******************************************************************************************
convt is being built WITHOUT OpenMP: it will run on one thread only.
The compiler could not build and run a small OpenMP program. gcc needs libgomp; clang needs
libomp (Debian: libomp-dev).
******************************************************************************************
"""

LEVELS_PROBE = """
#include "levels.h"
#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(CONVT_X86) && !defined(CONVT_NEON)
#error this compiler knows none of the vectors that this processor has
#endif
"""

WITHOUT_VECTORS = """
******************************************************************************************
convt is being built WITHOUT VECTORS: it will be ten and more times as slow.
Its kernels want gcc 12 or newer, or clang.
******************************************************************************************
"""


def compile_probe(compiler, text: str, folder: str, flags: Iterable[str] = ()) -> list[str]:
    source = Path(folder, "probe.c")
    source.write_text(text)
    return compiler.compile([str(source)], output_dir=folder, include_dirs=["convt"], extra_postargs=list(flags))


def has_openmp(compiler) -> bool:
    """Whether a program with a parallel region compiles, links and, unless it is for another processor, runs."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            objects = compile_probe(compiler, PROBE, folder, OPENMP)
            compiler.link_executable(objects, "probe", output_dir=folder, extra_postargs=OPENMP)
            return runs(Path(folder, "probe"))
        except Exception as error:  # a compiler can fail in many ways; the message names the one
            print(f"OpenMP probe: {error}", file=sys.stderr)
            return False


def runs(program: Path) -> bool:
    """Whether a program ends well; one that this system cannot begin is taken to."""
    try:
        return subprocess.run([program], capture_output=True, timeout=60).returncode == 0
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            return True
        raise


def has_vectors(compiler) -> bool:
    """Whether the build has a level besides the generic one, where the processor has any."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            compile_probe(compiler, LEVELS_PROBE, folder)
        except Exception as error:
            print(f"Probe of vectors: {error}", file=sys.stderr)
            return False
    return True


def side_by_side(compile_all, pool):
    """`compile_all` of a compiler, each source by itself in the pool."""

    def compile_each(sources, **options):
        objects = pool.map(lambda source: compile_all([source], **options), sources)
        return [path for paths in objects for path in paths]

    return compile_each


class BuildKernels(build_ext):
    """Compile with OpenMP and vectors where the compiler has them; without, and loudly, where it does not."""

    def build_extensions(self) -> None:
        if not has_vectors(self.compiler):
            self.complain(WITHOUT_VECTORS, "CONVT_ALLOW_GENERIC")
        openmp = OPENMP if has_openmp(self.compiler) else []
        if not openmp:
            self.complain(WITHOUT_OPENMP, "CONVT_ALLOW_SERIAL")
        for extension in self.extensions:
            extension.extra_compile_args = FLAGS + openmp + extension.extra_compile_args
            extension.extra_link_args = openmp
        workers = self.parallel or os.cpu_count()
        self.parallel = len(self.extensions)  # all wait for the pool, which compiles what they want
        with ThreadPoolExecutor(workers) as pool:
            self.compiler.compile = side_by_side(self.compiler.compile, pool)
            super().build_extensions()

    def complain(self, lack: str, variable: str) -> None:
        """Warn of what the build lacks; a wheel, which is for others, is refused unless a variable is set."""
        if "bdist_wheel" in self.distribution.have_run and os.environ.get(variable) != "1":
            raise SystemExit(f"{lack}A wheel is not built like that, unless {variable}=1 is set.")
        warnings.warn(lack, stacklevel=1)


class Wheel(bdist_wheel):
    """Says that a wheel is being built before its extensions are."""

    def run(self) -> None:
        self.distribution.have_run["bdist_wheel"] = 0
        super().run()


def extension(name: str, *flags: str, sources: Iterable[Path] = ()) -> Extension:
    return Extension(
        f"convt.{name}",
        [f"convt/{name}.pyx", *map(str, sources)],
        include_dirs=[numpy.get_include()],
        depends=[str(header) for header in Path("convt").glob("*.h")],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
        extra_compile_args=list(flags),
    )


if __name__ == "__main__":  # not in the processes that Cython starts
    setup(
        ext_modules=cythonize(
            [
                # Three quarters of all the work, begun first. Its loops are vectors already: -O3 takes a
                # fifth longer to compile them and makes them no faster (44 layers, 1.00). Only the module
                # itself needs the tables of its sources.
                extension("_levels", "-O2", "-fvisibility=hidden", sources=sorted(Path("convt").glob("[!_]*.c"))),
                *(extension(path.stem) for path in sorted(Path("convt").glob("_*.pyx")) if path.stem != "_levels"),
            ],
            compiler_directives=DIRECTIVES,
            nthreads=os.cpu_count() or 1,
        ),
        cmdclass={"build_ext": BuildKernels, "bdist_wheel": Wheel},
    )
