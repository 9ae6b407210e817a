"""How many threads, and after a fork."""

import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import convt
from convt import planner, threads
from convt.geometry import OnnxRules
from convt.layer import Layer

X = np.ones((4, 16, 32, 32), np.float32)
W = np.ones((16, 16, 3, 3), np.float32)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("CONVT_NUM_THREADS", raising=False)


@pytest.fixture
def roomy(monkeypatch):
    """A machine that allows 8 processors, whatever this one has."""
    monkeypatch.setattr(threads, "processors", lambda: 8)
    monkeypatch.setattr(threads, "openmp_limit", lambda: 8)
    monkeypatch.setattr(threads, "cpu_quota", lambda: None)


def test_explicit_number_is_taken_as_given(roomy, monkeypatch):
    monkeypatch.setattr(threads, "MOST_THREADS", 100)
    assert threads.explain(100) == (100, "n_threads")


def test_environment_before_openmp(roomy, monkeypatch):
    monkeypatch.setenv("CONVT_NUM_THREADS", "3")
    assert threads.explain(None) == (3, "CONVT_NUM_THREADS")


def test_openmp_limit_by_default(roomy, monkeypatch):
    monkeypatch.setattr(threads, "openmp_limit", lambda: 5)
    assert threads.explain(None) == (5, "OpenMP's limit")


def test_never_more_than_affinity(roomy, monkeypatch):
    monkeypatch.setattr(threads, "processors", lambda: 2)
    monkeypatch.setenv("CONVT_NUM_THREADS", "6")
    assert threads.explain(None) == (2, "processor affinity")


def test_never_more_than_the_quota(roomy, monkeypatch):
    monkeypatch.setattr(threads, "cpu_quota", lambda: 1)
    assert threads.explain(None) == (1, "container CPU quota")


def test_threadpoolctl_limits_calls_of_the_moment():
    with threadpool_limits(1, user_api="openmp"):
        assert threads.resolve(None) == 1
        assert convt.ConvTranspose(W).explain(X.shape)["threads"] == 1


def test_affinity_of_the_moment():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert threads.resolve(None) == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_openmp_that_binds_its_threads_has_all_processors():
    """It leaves the calling thread one of them."""
    program = "from convt import threads; print(threads.resolve(None))"
    counts = [
        int(subprocess.check_output([sys.executable, "-c", program], env={**os.environ, "OMP_PROC_BIND": bind}))
        for bind in ("false", "true")
    ]
    assert counts[0] == counts[1]


def test_other_python_threads_run_during_a_call():
    """The interpreter takes the lock from no thread that does not give it away."""
    layer = convt.ConvTranspose(np.ones((64, 64, 4, 4), np.float32), strides=[2, 2], n_threads=1)
    x = np.ones((16, 64, 64, 64), np.float32)
    layer(x)
    began, ended = threading.Event(), False

    def call():
        nonlocal ended
        began.set()
        layer(x)
        ended = True

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=call)
    try:
        sys.setswitchinterval(1000)
        thread.start()
        began.wait()
        ended_first = ended
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not ended_first


def test_large_work_uses_the_threads_it_is_given():
    assert convt.ConvTranspose(W, n_threads=3).explain(X.shape)["threads"] == 3


def test_few_products_of_many_outputs_use_threads():
    layer = convt.ConvTranspose(np.ones((1, 1, 1, 1), np.float32), strides=[4, 4], n_threads=2)
    assert layer.explain((1, 1, 256, 256))["threads"] == 2


def test_a_call_that_packs_its_weights_counts_that_as_work():
    """Of a layer that multiplies by them so little that one thread is enough."""
    w = np.ones((256, 128, 4, 4), np.float32)
    call = Layer(OnnxRules(w.shape, strides=[2, 2], pads=[1] * 4), w, None, 2, "highest")
    layer = convt.ConvTranspose(w, strides=[2, 2], pads=[1] * 4, n_threads=2)
    shape = (1, 256, 1, 2)
    assert layer.explain(shape)["threads"] == 1
    assert call.explain(shape)["threads"] == 2


def test_small_work_stays_serial():
    assert convt.ConvTranspose(W[:, :, :1, :1], n_threads=8).explain((1, 16, 2, 2))["threads"] == 1


def test_no_more_threads_than_tasks(monkeypatch):
    monkeypatch.setattr(planner, "CYCLES_PER_THREAD", 1)  # the work would be enough for all
    layer = convt.ConvTranspose(np.ones((4096, 1, 1), np.float32), n_threads=64)
    report = layer.explain((1, 4096, 3))
    assert report["threads"] <= report["tiles"]["tasks"] <= 3


def test_a_call_asks_for_no_more_threads_than_the_limit():
    layer = convt.ConvTranspose(np.ones((512, 512, 16), np.float32), n_threads=10**6)
    assert layer.explain((1024, 512, 4096))["threads"] == threads.MOST_THREADS


@pytest.mark.parametrize(("n_threads", "environment"), [(10**6, "1"), (None, str(10**17))])
def test_any_number_of_threads_is_limited(roomy, monkeypatch, n_threads, environment):
    monkeypatch.setattr(threads, "processors", lambda: 0)  # unknown
    monkeypatch.setenv("CONVT_NUM_THREADS", environment)
    assert threads.explain(n_threads) == (threads.MOST_THREADS, "more might be refused")


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "100000 100000", "box/cpu.max": "max 100000"}, 1),
        ({"cpu.max": "900000 100000", "box/cpu.max": "400000 100000"}, 4),
        ({"cpu/box/cpu.cfs_quota_us": "-1", "cpu/box/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/box/cpu.cfs_quota_us": "250000", "cpu/box/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu.max": "nonsense"}, None),
    ],
)
def test_quota_of_control_groups(tmp_path, files, wanted):
    (tmp_path / "proc").write_text("4:cpu,cpuacct:/box\n3:memory:/box\n0::/box\n")
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert threads.cpu_quota(str(tmp_path / "proc"), str(tmp_path / "root")) == wanted


def test_quota_of_groups_with_names_of_any_bytes(tmp_path):
    (tmp_path / "proc").write_bytes(b"odd\n0::/b\xf6x\n")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "cpu.max").write_text("200000 100000")
    assert threads.cpu_quota(str(tmp_path / "proc"), str(tmp_path / "root")) == 2


def test_quota_without_control_groups(tmp_path):
    assert threads.cpu_quota(str(tmp_path / "none")) is None


def _child(queue):
    y = convt.conv_transpose(X, W, n_threads=2)
    queue.put((threads.explain(2), float(y.sum())))


def test_forked_child_runs_one_thread_and_does_not_hang():
    wanted = float(convt.conv_transpose(X, W, n_threads=2).sum())  # the parent now has a pool of threads
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    try:
        assert queue.get(timeout=60) == ((1, "this process was forked"), wanted)
    finally:
        child.kill()
        child.join()


@pytest.mark.heavy
def test_threads_get_along_with_a_stack_of_64_kb():
    code = """
import numpy as np, convt
from convt import planner
from ways import WAYS, dtype_of, forced
planner.CYCLES_PER_THREAD = 1
for way in WAYS:
    for dtype in (np.float32, np.float64, np.float16):
        dtype = dtype_of(way, dtype) if dtype == np.float32 else dtype
        x, w = np.ones((2, 70, 19, 37), dtype), np.ones((70, 40, 3, 3), dtype)
        with forced(way):
            convt.conv_transpose(x, w, strides=[2, 2], n_threads=2)
print(len(WAYS))
"""
    environment = {**os.environ, "OMP_STACKSIZE": "64K", "PYTHONPATH": os.path.dirname(__file__)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and int(done.stdout) > 0, done.stderr
