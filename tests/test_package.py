"""What the package is from outside: imports, command line, public names."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ways import built

import convt
from convt import isa
from convt.__main__ import main


def python(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=True)


def test_import_brings_in_no_optional_package():
    code = "import sys, convt; print(*sys.modules)"
    modules = set(python("-c", code).stdout.split())
    assert "convt._machine" in modules and "convt._kernels" not in modules
    heavy = {"onnx", "sklearn", "dask", "torch", "ml_dtypes", "matplotlib", "threadpoolctl", "scipy"}
    assert not modules & heavy


def test_sources_that_were_not_built_say_so(tmp_path):
    package = tmp_path / "convt"
    package.mkdir()
    for source in Path(convt.__file__).parent.glob("*.py"):
        shutil.copy(source, package)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import convt"
    # -S: not the finder of an editable installation.
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=120)
    assert "was not built" in done.stderr


def test_loading_the_library_keeps_subnormals():
    code = """
import importlib, numpy, pathlib, convt
for library in pathlib.Path(convt.__file__).parent.glob("_*.so"):
    importlib.import_module("convt." + library.name.split(".")[0])
print(numpy.float32(1e-45) * numpy.float32(1), *(name for name in sys.modules if name.startswith("convt._")))
"""
    product, *modules = python("-c", "import sys" + code).stdout.split()
    assert float(product) > 0 and {"convt._levels", "convt._box_compute"} <= set(modules)


@pytest.mark.skipif("amx" not in isa.available(), reason="needs AMX, of which a process is asked once")
@pytest.mark.parametrize(("level", "allowed"), [("avx2", False), ("amx", True)])
def test_tile_registers_are_asked_for_only_where_they_are_used(level, allowed):
    code = """
import ctypes, numpy as np, convt
convt.conv_transpose(np.ones((1, 1, 3)), np.ones((1, 1, 3)))
arch_prctl, of_process, tile_data, mask = 158, 0x1022, 1 << 18, ctypes.c_uint64()
ctypes.CDLL(None).syscall(arch_prctl, of_process, ctypes.byref(mask))
print(bool(mask.value & tile_data))
"""
    environment = {**os.environ, "CONVT_ISA": level}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert printed.stdout.decode() == f"{allowed}\n"


@pytest.mark.skipif(not built("avx512_bf16"), reason="this build has no level that gains on some processors alone")
def test_a_level_that_does_not_gain_on_this_processor_is_not_chosen(monkeypatch):
    monkeypatch.delenv("CONVT_ISA", raising=False)
    monkeypatch.setattr(isa, "available", lambda: ("generic", "avx2", "avx512", "avx512_bf16"))
    with Path("/proc/cpuinfo").open() as file:
        amd = "AuthenticAMD" in file.read()
    isa.fastest.cache_clear()
    try:
        assert isa.choose() == ("avx512_bf16" if amd else "avx512")
    finally:
        isa.fastest.cache_clear()


def test_public_names():
    for name in convt.__all__:
        assert hasattr(convt, name)


def public_functions():
    names = [name for name in convt.__all__ if inspect.isfunction(getattr(convt, name))]
    functions = [getattr(convt, name) for name in names]
    functions += [getattr(convt.functional, f"conv_transpose{n}d") for n in (1, 2, 3)]
    functions += [getattr(convt.reference, name) for name in names if hasattr(convt.reference, name)]
    layer = convt.ConvTranspose
    return [*functions, layer, layer.__call__, layer.explain, layer.output_shape]


def sections(text):
    """The numpydoc sections of a docstring, by heading."""
    parts = re.split(r"^(\w+)\n-+\n", inspect.cleandoc(text), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("function", public_functions(), ids=lambda f: f"{f.__module__}.{f.__qualname__}")
def test_every_public_function_is_documented(function):
    """In numpydoc's sections, with all parameters."""
    documented = sections(function.__doc__)
    assert inspect.isclass(function) or "Returns" in documented
    parameters = [str(p).split(":")[0].split(" =")[0] for p in inspect.signature(function).parameters.values()]
    parameters = [name for name in parameters if name != "self"]
    assert not parameters or "Raises" in documented
    lines = re.findall(r"^(?=\S)[^:\n]+", documented.get("Parameters", ""), flags=re.M)
    assert sorted(name for line in lines for name in re.split(r",\s*", line.strip())) == sorted(parameters)


def test_show_config_prints_and_returns(capsys):
    report = convt.show_config()
    assert capsys.readouterr().out.strip() == str(report)
    assert {"isa", "isa_available", "compiler", "openmp", "threads", "threads_because", "numpy"} <= set(report)


def test_info_command_prints_the_configuration(capsys):
    assert main(["info"]) == 0
    assert "isa_available" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["dance"], ["info", "--nonsense"]])
def test_unusable_command_line(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m convt" in capsys.readouterr().err


def test_demo_without_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match=r"convt\[demo\]"):
        main(["demo"])


def test_demo_names_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(SystemExit, match=r"^output: expected .*missing"):
        main(["demo", "--output", str(tmp_path / "missing" / "picture.png")])


@pytest.mark.parametrize("name", ["", "picture.xyz"])
def test_demo_names_a_file_that_cannot_be_written(tmp_path, name):
    with pytest.raises(SystemExit, match=r"^output: "):
        main(["demo", "--output", str(tmp_path / name)])


@pytest.mark.parametrize("command", ["info", "demo"])
@pytest.mark.parametrize("variable", ["CONVT_ISA", "CONVT_NUM_THREADS"])
def test_commands_name_a_variable_that_is_unusable(command, variable, monkeypatch, capsys):
    monkeypatch.setenv(variable, "avx1024")
    with pytest.raises(SystemExit) as caught:
        main([command])
    assert caught.value.code == 1
    assert capsys.readouterr().err.startswith(f"{variable}: expected")


def test_demo_writes_the_picture(tmp_path, capsys):
    from matplotlib import image

    picture = tmp_path / "picture.png"
    assert main(["demo", "--output", str(picture)]) == 0
    assert image.imread(picture).shape[:2] == (3 * 190, 2 * 3 * 230)
    assert "error" in capsys.readouterr().out
