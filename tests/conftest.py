import pytest

from convt import isa, plan


@pytest.fixture(params=isa.available())
def each_isa(request, monkeypatch):
    """Runs the test once per instruction-set level that this machine can execute."""
    monkeypatch.setenv("CONVT_ISA", request.param)
    return request.param


@pytest.fixture(scope="module")
def threads_for_any_work():
    """Small cases must really run on as many threads as they ask for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MACS_PER_THREAD", 1)
        yield
