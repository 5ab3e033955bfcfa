"""The backend of ``torch.compile``: threads and options."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

import stridewise.torch as st  # noqa: E402
from stridewise.errors import (  # noqa: E402
    InputError,
    StridewiseError,
)
from stridewise.runtime.machine.cpus import usable_cpus  # noqa: E402
from stridewise.torch.options import Options  # noqa: E402

from .compiled_modules import Net, close, compiled, image, same  # noqa: E402

# PyTorch warns of its own changes to come; the tests are about warnings of the backend.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


# --- threads and options --------------------------------------------------------------------------


def test_several_threads():
    model = Net().eval()
    fast = compiled(model)
    x = image()
    with torch.no_grad():
        wanted = model(x)
    found, failed = [], []

    def call():
        try:
            with torch.no_grad():
                found.extend(fast(x) for _ in range(5))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(found) == 20
    for item in found:
        close(item, wanted)


def test_the_number_of_threads_is_that_of_pytorch(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # too late for PyTorch, which is loaded
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert Options().compiling(False).threads == min(threads, usable_cpus())
    finally:
        torch.set_num_threads(before)


def test_options():
    model = Net().eval()
    x = image()
    same(compiled(model, threads=1, accuracy="exact", memory_limit=1 << 30), model, x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thread": 1}, r"expected some of threads.*found 'thread'"),
        ({"accuracy": "slow"}, r"accuracy: expected 'fast' or 'exact'.*found 'slow'"),
        ({"dtype": torch.bfloat16}, r"dtype: expected 'model' or .*found torch.bfloat16"),
        ({"fallback": True}, r"fallback: expected 'eager' or 'error'.*found True"),
        ({"max_error": 0}, r"max_error: expected a relative error above 0.*found 0"),
        ({"max_error": float("nan")}, r"max_error: expected a relative error above 0.*found nan"),
        ({"memory_limit": "1 GB"}, r"memory_limit: expected a number from 1 on.*found '1 GB'"),
        ({"threads": 1.5}, r"threads: expected a number from 1 on.*found 1.5"),
        ({"threads": True}, r"threads: expected a number from 1 on.*found True"),
        ({"tune": "fast"}, r"tune: expected 'auto' or 'measure' or 'model'.*found 'fast'"),
        ({"tune": ["auto"]}, r"tune: expected 'auto' or 'measure' or 'model'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(InputError, match=message):
        Options.of(options)


def test_a_wrong_option_of_torch_compile():
    with pytest.raises(Exception, match=r"InputError: backend 'stridewise', accuracy"):
        compiled(Net().eval(), accuracy="slow")(image())


@pytest.mark.parametrize("tune", ["auto", "measure", "model"])
def test_tuning(tune, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = Net().eval()
    fast = compiled(model, tune=tune)
    for batch in (2, 3, 4):
        same(fast, model, image(batch))
    assert any(tmp_path.iterdir()) == (tune != "model")


def test_bfloat16_inside_of_programs():
    model, x = Net().eval(), image()
    with torch.no_grad():
        found, wanted = compiled(model, dtype="bfloat16")(x), model(x)
    assert found.dtype == torch.float32
    assert torch.allclose(found, wanted, atol=0.05 * float(wanted.abs().max()))


def test_memory_limit():
    with pytest.raises(StridewiseError, match="memory"), torch.no_grad():
        compiled(Net().eval(), memory_limit=100)(image())


def test_modes_and_fullgraph():
    model = Net().eval()
    fast = torch.compile(model, backend="stridewise", mode="reduce-overhead", fullgraph=True)
    same(fast, model, image())


def test_report_of_something_else():
    with pytest.raises(StridewiseError, match=r"torch\.nn\.Module"):
        st.report(3)
