import pytest

from convt import isa


@pytest.fixture(params=isa.available())
def each_isa(request, monkeypatch):
    """Runs the test once per instruction-set level that this machine can execute."""
    monkeypatch.setenv("CONVT_ISA", request.param)
    return request.param
