"""Teams of threads: as many as asked for in every parallel region, and a bounded set."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import stridewise as sw
from stridewise.graph import Graph
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.primitives import create
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.kernels import KernelSpec, MemorySpec

from .graphs import Net, error, inputs_of

SKIPPED = """
    import numpy as np
    import stridewise as sw

    def networks():
        rng = np.random.default_rng(0)
        for op, x, w, attrs in (
            ("conv_transpose", (1, 32, 20, 20), (32, 32, 3, 3),
             {"strides": (2, 2), "dilations": (2, 2)}),
            ("conv_transpose", (1, 20, 20, 20), (20, 5, 3, 3), {"groups": 4, "strides": (2, 2)}),
            ("conv", (1, 20, 28, 28), (20, 5, 3, 3), {"groups": 4, "pads": (1, 1, 1, 1)}),
            ("conv", (1, 17, 28, 28), (9, 17, 3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
            ("conv", (1, 16, 8, 12, 12), (16, 16, 3, 3, 3), {"pads": (1,) * 6}),
        ):
            b = sw.GraphBuilder()
            weights = b.constant(rng.standard_normal(w).astype(np.float32), "w")
            yield b.build([b.op(op, [b.input("x", x), weights], attrs, output="y")])

    for graph in networks():
        x = np.random.default_rng(1).standard_normal(graph.value("x").shape).astype(np.float32)
        wanted = sw.compile(graph, tune="model", threads=1)(x)
        try:
            found = [sw.compile(graph, tune="model", threads=THREADS)(x) for _ in range(2)]
        except sw.StridewiseError as error:
            print(error)
        else:
            print(all(np.allclose(y, wanted, 1e-3, 1e-3) for y in found))
"""


def said(code: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OMP_DYNAMIC", "true"),
        ("OMP_NUM_THREADS", "1"),
        ("OMP_NUM_THREADS", "1,1"),
        ("OMP_MAX_ACTIVE_LEVELS", "0"),
        ("OMP_NESTED", "true"),
        ("OMP_PROC_BIND", "close"),
    ],
)
@pytest.mark.parametrize("threads", [2, 5, 16])
def test_parallel_regions_with_fewer_threads(threads: int, variable: str, value: str) -> None:
    code = SKIPPED.replace("THREADS", str(threads))
    assert said(code, **{variable: value}) == ["True"] * 5


def test_a_limit_of_threads_is_an_error() -> None:
    for line in said(SKIPPED.replace("THREADS", "2"), OMP_THREAD_LIMIT="1"):
        assert "OMP_THREAD_LIMIT" in line
        assert "threads=1" in line or "at most 1" in line


def network() -> Graph:
    b = Net(1, 17, 9, 9)
    return b.build([b.conv(b.conv(b.x, 20, 3), 8, 1)])


def test_calls_within_a_parallel_region_of_the_caller() -> None:
    """A region of OpenMP inside of a region gets one thread; those of the core are of their own."""
    lines = said("""
        import ctypes
        import numpy as np
        import stridewise as sw

        b = sw.GraphBuilder()
        x = b.input("x", (1, 32, 20, 20))
        w = b.constant(np.random.default_rng(0).standard_normal((32, 32, 3, 3), np.float32), "w")
        graph = b.build([b.op("conv_transpose", [x, w], {"strides": (2, 2)}, output="y")])
        model = sw.compile(graph, tune="model", threads=2)
        array = np.random.default_rng(1).standard_normal((1, 32, 20, 20), np.float32)
        wanted, found = model(array), []
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: found.append(model(array)))
        ctypes.CDLL("libgomp.so.1").GOMP_parallel(call, None, 2, 0)
        print(len(found), all(np.array_equal(y, wanted) for y in found))
    """)
    assert lines == ["2 True"]


def test_many_callers_share_few_threads() -> None:
    lines = said("""
        import os, threading
        import numpy as np
        import stridewise as sw
        from stridewise.runtime.binding.library import load_core

        b = sw.GraphBuilder()
        graph = b.build([b.relu(b.conv2d(b.input("x", (1, 16, 16, 16)), 16, 3))])
        model = sw.compile(graph, tune="model", threads=2)
        x = np.zeros((1, 16, 16, 16), np.float32)
        model(x)
        before = len(os.listdir("/proc/self/task"))
        done, end = threading.Barrier(17), threading.Event()

        def call():
            for _ in range(5):
                model(x)
            done.wait()
            end.wait()

        callers = [threading.Thread(target=call) for _ in range(16)]
        for caller in callers:
            caller.start()
        done.wait()
        print(len(os.listdir("/proc/self/task")) - before - 16, load_core().team_count())
        end.set()
        for caller in callers:
            caller.join()
    """)
    assert lines == ["0 1"]


CALLERS = """
    import os, threading, time
    import numpy as np
    import stridewise as sw
    from stridewise.runtime.binding.library import load_core

    core = load_core()
    core.permit_callers()
    b = sw.GraphBuilder()
    x = b.input("x", (1, 16, 16, 16))
    graph = b.build([b.relu(b.conv2d(b.softmax(b.conv2d(x, 16, 3)), 16, 3))])
    x = np.random.default_rng(0).standard_normal((1, 16, 16, 16)).astype(np.float32)
    wanted = sw.compile(graph, tune="model", threads=1)(x)
    threads = 2  # what OMP_NUM_THREADS gives regions of this thread
    model = sw.compile(graph, tune="model", threads=threads)

    def is_right():
        return np.allclose(model(x), wanted, 1e-4, 1e-5)

    def in_thread(function):
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()
        time.sleep(0.2)  # Python counts a thread as ended before it is
"""


def test_a_permitted_caller_enters_regions_itself() -> None:
    lines = said(CALLERS + """
    before = os.sched_getaffinity(0)
    print(all(is_right() for _ in range(20)), core.team_count())
    print(os.sched_getaffinity(0) == before, np.float32(1e-40) * np.float32(1) > 0)
    """, OMP_NUM_THREADS="2")  # fmt: skip
    assert lines == ["True 0", "True True"]


def test_runs_share_the_workers_of_pytorch_that_is_imported_later() -> None:
    lines = said(CALLERS.replace("core.permit_callers()", "import sys, types") + """
    print(is_right(), core.team_count())
    before = len(os.listdir("/proc/self/task"))
    sys.modules["torch"] = types.ModuleType("torch")
    sys.modules["torch"].Tensor = type("Tensor", (), {})
    print(is_right(), core.team_count(), len(os.listdir("/proc/self/task")) - before)
    """, OMP_NUM_THREADS="2")  # fmt: skip
    assert lines == ["True 1", "True 1 1"]  # the worker of an OpenMP region is new


def test_one_caller_at_a_time_enters_regions_itself() -> None:
    """Models of other threads run on teams. When a caller's thread ends, another may take over."""
    lines = said(CALLERS + """
    in_thread(lambda: print(is_right(), core.team_count()))
    print(is_right(), core.team_count())
    in_thread(lambda: print(is_right(), core.team_count()))
    """, OMP_NUM_THREADS="2")  # fmt: skip
    assert lines == ["True 0", "True 0", "True 1"]


def test_callers_at_once_get_right_results() -> None:
    lines = said(CALLERS + """
    found = []

    def call():
        for _ in range(100):
            found.append(is_right())

    callers = [threading.Thread(target=call) for _ in range(6)]
    for caller in callers:
        caller.start()
    call()
    for caller in callers:
        caller.join()
    print(len(found), all(found))
    """, OMP_NUM_THREADS="2")  # fmt: skip
    assert lines == ["700 True"]


@pytest.mark.parametrize(
    "variables",
    [
        {"OMP_NUM_THREADS": "3"},
        {"OMP_NUM_THREADS": "2", "OMP_DYNAMIC": "true"},
        {"OMP_NUM_THREADS": "2", "OMP_MAX_ACTIVE_LEVELS": "0"},
    ],
)
def test_a_caller_with_other_settings_does_not_enter_regions(variables: dict[str, str]) -> None:
    code = CALLERS + "    print(is_right(), core.team_count())"
    assert said(code, **variables) == ["True 1"]


def test_children_of_a_fork_do_not_enter_regions_from_callers() -> None:
    """The workers of the parent, which OpenMP would wait for, do not exist there."""
    lines = said(CALLERS + """
    from stridewise.runtime.binding import library

    print(is_right(), core.team_count(), library._is_forked(), flush=True)
    child = os.fork()
    if child == 0:
        print(is_right(), core.team_count(), library._is_forked(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(is_right(), core.team_count())
    """, OMP_NUM_THREADS="2")  # fmt: skip
    assert lines == ["True 0 False", "True 1 True", "True 0"]


def test_regions_of_the_library_run_on_the_workers_of_the_core() -> None:
    """GNU OpenMP, whose runtime the library was built for, starts no threads."""
    lines = said("""
        import os
        from stridewise.runtime.binding.library import load_core
        import stridewise as sw
        import numpy as np

        core = load_core()
        before = len(os.listdir("/proc/self/task"))
        image = core.MemoryDesc((1, 32, 8, 8), "f32", "aBcd16b")
        shuffle = core.shuffle(image, image, 1, 4, threads=2).create()  # enters a region
        print(shuffle.impl.startswith("jit"), len(os.listdir("/proc/self/task")) - before)
        b = sw.GraphBuilder()
        x = b.input("x", (1, 32, 20, 20))
        model = sw.compile(b.build([b.softmax(b.conv2d(x, 32, 3))]), threads=2)
        model(np.zeros((1, 32, 20, 20), np.float32))
        print(len(os.listdir("/proc/self/task")) - before, core.team_count())
    """)
    assert lines == ["True 1", "1 1"]


def test_models_that_run_at_once_wait_for_few_teams() -> None:
    graph = network()
    feeds = inputs_of(graph)
    wanted = run_reference(graph, feeds)
    models = [sw.compile(graph, tune="model", threads=2 + i % 3) for i in range(8)]
    errors: list[float] = []

    def call(model: sw.CompiledModel) -> None:
        for _ in range(20):
            found = model.run(feeds)
            errors.append(max(error(found[name], wanted[name]) for name in wanted))

    callers = [threading.Thread(target=call, args=(model,)) for model in models]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(errors) == 160
    assert max(errors) < 1e-5
    assert load_core().team_count() <= max(2, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
def test_results_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    graph = network()
    feeds = inputs_of(graph)
    found = sw.compile(graph, tune="model", threads=threads).run(feeds)
    for name, wanted in run_reference(graph, feeds).items():
        assert error(found[name], wanted) < 1e-5


@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="operator new of AddressSanitizer ends the process instead of throwing",
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_reorder_without_memory_for_its_scratch_is_an_error(threads: int) -> None:
    lines = said(
        """
        import resource
        import numpy as np
        from stridewise.runtime.binding.library import load_core

        core = load_core()
        rows, width = 300_000, 512
        tile = dict(is_zero=False, is_runs=True, src=0, dst=0, scale=0, loops=[], width=width,
                    zeros=0, width_scale=0, rows=[0] * rows, row_scales=[0] * rows,
                    columns=[0] * rows, column_scales=[])
        reorder = core.Reorder(
            [([], [tile])], src_itemsize=4, dst_itemsize=2, conversion=("f32", "bf16"), scales=[],
            src_nbytes=4 * width, dst_nbytes=2 * width, fill_nbytes=0, isa=core.reorder_isas()[0])
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (150 << 20),) * 2)
        try:
            source, target = np.ones(width, np.float32), np.zeros(width, np.uint16)
            reorder.run(source, target, THREADS, False, True)
        except MemoryError:
            print("MemoryError")
    """.replace("THREADS", str(threads))
    )
    assert lines == ["MemoryError"]


def product(tag: str) -> KernelSpec:
    """A convolution of an image of 1x1, whose formats nchw and nhwc have the same bytes."""
    memories = (
        ("src", MemorySpec((1, 32, 1, 1), tag)),
        ("weights", MemorySpec((16, 32, 1, 1), "any")),
        ("dst", MemorySpec((1, 16, 1, 1), tag)),
    )
    params = tuple((name, (1, 1)) for name in ("strides", "dilations"))
    params += tuple((name, (0, 0)) for name in ("begins", "ends"))
    return KernelSpec("convolution", memories, params)


@pytest.mark.parametrize("implementation", ["x64:gemm:jit", "ref:any"])
def test_primitives_do_not_depend_on_earlier_ones(implementation: str) -> None:
    """The library's own cache takes both for equal and gives the first one out for the second."""
    core = load_core()
    argument = core.ARG_WEIGHTS
    orders = (("abcd", "acdb"), ("acdb", "abcd"))
    found = []
    for order in orders:
        create.cache_clear()
        made = {tag: create(product(tag), implementation, 1) for tag in order}
        found.append({tag: item.arg_desc(argument).layout for tag, item in made.items()})
    assert found[0] == found[1]


def test_equal_descriptors_have_equal_layouts_and_hashes() -> None:
    core = load_core()
    first = core.MemoryDesc((1, 32, 1, 1), "f32", "abcd")
    second = core.MemoryDesc((1, 32, 1, 1), "f32", "acdb")
    assert first == second
    assert first.layout == second.layout
    assert hash(first) == hash(second)
    other = core.MemoryDesc((1, 32, 1, 2), "f32", "acdb")
    assert other.layout != core.MemoryDesc((1, 32, 1, 2), "f32", "abcd").layout
    blocked = core.MemoryDesc((1, 17, 2, 2), "f32", "aBcd16b")
    assert blocked.layout == (
        "f32 [1, 17, 2, 2], padded [1, 32, 2, 2], strides [0, 64, 32, 16], blocks 16b, 512 bytes"
    )


def test_numpy_functions_of_a_model_run_in_the_thread_of_the_caller() -> None:
    """They see its settings, such as how NumPy treats errors."""
    b = sw.GraphBuilder()
    x = b.input("x", (1, 4, 3, 3))
    graph = b.build([b.relu(b.op("det", [b.relu(b.conv2d(x, 4, 1))]))])
    seen: list[int] = []
    from stridewise.ops import OPS  # the operator computes in NumPy

    original = OPS["det"].evaluate
    import dataclasses

    def watched(*args: object) -> object:
        seen.append(threading.get_ident())
        return original(*args)  # type: ignore[arg-type]

    OPS["det"] = dataclasses.replace(OPS["det"], evaluate=watched)
    try:
        model = sw.compile(graph, tune="model", threads=2)
        model(np.ones((1, 4, 3, 3), np.float32))
    finally:
        OPS["det"] = dataclasses.replace(OPS["det"], evaluate=original)
    assert set(seen) == {threading.get_ident()}
