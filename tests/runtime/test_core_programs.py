"""Programs of the native core: results, measurements, profiles and traces."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from .core_cases import (
    ARENA,
    CONSTANTS,
    F32,
    INPUTS,
    OUTPUTS,
    THREADS,
    chain_program,
    convolve,
    core,
    desc,
    random,
    relu_program,
)


class TestStreamedResults:
    """Resampling streams results that no cache holds, and crashes where no vector begins there."""

    @staticmethod
    def upsampling(side, tag, space):
        x, y = (desc((1, 64, size, size), tag) for size in (side, 2 * side))
        primitive = core.resampling("nearest", x, y, threads=THREADS).create()
        arena = y.nbytes + 64 if space == ARENA else 0
        program = core.Program(arena, [], [x.nbytes], [y.nbytes], THREADS)
        place = (ARENA, 0, 4) if space == ARENA else (OUTPUTS, 0, 0)
        program.add_primitive(
            primitive, [(core.ARG_SRC, x, INPUTS, 0, 0), (core.ARG_DST, y, *place)]
        )
        if space == ARENA:
            program.add_copy((OUTPUTS, 0, 0), place, y.nbytes)
        program.freeze()
        return program

    @pytest.mark.parametrize("tag", ["abcd", "acdb", "aBcd8b"])
    @pytest.mark.parametrize("space", [ARENA, OUTPUTS])
    @pytest.mark.parametrize("side", [4, 256])
    def test_results_may_begin_anywhere(self, side, tag, space):
        program = self.upsampling(side, tag, space)
        rng = np.random.default_rng(0)
        x = rng.random(64 * side**2, np.float32)
        memory = np.zeros(4 * x.size + 16, np.float32)
        begin = (-memory.ctypes.data % 64) // 4 + 1
        y = memory[begin : begin + 4 * x.size]
        channels, lanes = {"abcd": (64, 1), "acdb": (1, 64), "aBcd8b": (8, 8)}[tag]
        expected = x.reshape(channels, side, side, lanes).repeat(2, 1).repeat(2, 2)
        for _ in range(2):
            y[:] = 0
            program.run([x], [y])
            assert np.array_equal(y, expected.reshape(-1))


class TestMeasure:
    @staticmethod
    def relu(threads=THREADS):
        d = desc((1, 16, 8, 8))
        return core.eltwise("relu", d, d, threads=threads).create()

    def test_runs_until_the_maximum(self):
        samples, _ = core.Measurement(self.relu()).run(min_runs=1, max_runs=7, budget_ns=10**10)
        assert len(samples) == 7
        assert all(sample > 0 for sample in samples)

    def test_runs_the_minimum_without_a_budget(self):
        measurement = core.Measurement(self.relu())
        for _ in range(2):
            samples, _ = measurement.run(min_runs=3, max_runs=7, budget_ns=0)
            assert len(samples) == 3

    def test_everything_a_primitive_needs_is_made_up(self):
        d, w = desc((1, 32, 8, 8), "acdb"), desc((32, 32, 3, 3), "any")
        ops = [("sum", 1.0), ("binary", "add", desc((1, 32, 1, 1)))]
        pd = core.convolution(d, w, desc((32,)), d, [1, 1], [1, 1], [1, 1], [1, 1], ops, threads=1)
        core.Measurement(pd.create()).run(min_runs=1, max_runs=2, budget_ns=0)

    def test_one_thread_leaves_the_setting_alone(self):
        core.Measurement(self.relu(1)).run(min_runs=1, max_runs=1, budget_ns=0)
        assert core.max_threads() == THREADS

    def test_an_operation_lives_as_long_as_its_measurement(self):
        measurement = core.Measurement(self.relu())
        gc.collect()
        measurement.run(min_runs=1, max_runs=1, budget_ns=0)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"min_runs": 0}, "expected 1 <= min_runs <= max_runs"),
            ({"min_runs": 3, "max_runs": 2}, "expected 1 <= min_runs <= max_runs"),
            ({"budget_ns": -1}, "expected a budget_ns of at least 0"),
        ],
    )
    def test_wrong_options(self, options: dict[str, int], message: str):
        usual = {"min_runs": 1, "max_runs": 1, "budget_ns": 0}
        with pytest.raises(ValueError, match=message):
            core.Measurement(self.relu()).run(**(usual | options))
        with pytest.raises(ValueError, match="spread_nbytes"):
            core.Measurement(self.relu(), spread_nbytes=-1)

    def test_weights_can_be_cold_and_operands_spread(self):
        x, w = desc((1, 16, 8, 8)), core.MemoryDesc((16, 16, 1, 1), "f32", "any")
        pd = core.convolution(x, w, None, x, [1, 1], [1, 1], [0, 0], [0, 0], threads=THREADS)
        measurement = core.Measurement(pd.create(), cold=[core.ARG_WEIGHTS], spread_nbytes=100_000)
        assert 100_000 <= measurement.nbytes < 120_000
        samples, _ = measurement.run(min_runs=5, max_runs=5, budget_ns=0)
        assert len(samples) == 5
        assert min(samples) > 0


class TestProgram:
    def test_all_spaces(self):
        program, reference = chain_program()
        x = random(1, 16, 10, 10)
        y = np.empty_like(x)
        for poison in (False, True):
            program.poison = poison
            program.run([x], [y])
            np.testing.assert_allclose(y, reference(x), rtol=1e-6)
        assert program.poison
        assert (program.step_count, program.context_count) == (4, 1)
        assert program.arena_nbytes == 3 * x.nbytes
        assert program.frozen
        assert program.threads == THREADS

    def test_other_arrays_each_run(self):
        program = relu_program()
        for seed in range(5):
            x = random(1, 16, 8, 8, seed=seed)
            y = np.full_like(x, np.nan)
            program.run((x,), (y,))
            np.testing.assert_array_equal(y, np.maximum(x, 0))

    def test_poison_shows_what_is_read_before_it_is_written(self):
        n = 64
        program = core.Program(n, [], [], [n], THREADS)
        program.add_copy((OUTPUTS, 0, 0), (ARENA, 0, 0), n)
        program.freeze()
        y = np.ones(16, F32)
        program.run([], [y])
        assert not y.any()
        program.poison = True
        program.run([], [y])
        assert np.isnan(y).all()

    def test_traces_fill_their_arenas_with_nan_whatever_else_runs(self):
        program = core.Program(64, [], [], [4], THREADS)
        program.add_fill((ARENA, 0, 0), 4, 1.0)
        program.add_copy((OUTPUTS, 0, 0), (ARENA, 0, 0), 4)
        program.freeze()
        seen: list[bool] = []

        def look(_step, arena, _outputs):
            if len(seen) == 0:
                seen.append(True)
                program.trace([], [np.zeros(1, F32)], look)
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(program.run, [], [np.zeros(1, F32)]).result()
            seen.append(bool((arena[16:] == 0xFF).all()))

        program.trace([], [np.zeros(1, F32)], look)
        assert seen == [True] * 5
        assert not program.poison

    def test_empty_program(self):
        program = core.Program(0, [], [], [], THREADS)
        program.freeze()
        program.run([], [])

    def test_constants_are_kept_alive(self):
        constant = np.arange(16, dtype=F32)
        constant.flags.writeable = False
        program = core.Program(0, [constant, core.Buffer(8)], [], [64], THREADS)
        del constant
        gc.collect()
        program.add_copy((OUTPUTS, 0, 0), (CONSTANTS, 0, 0), 64)
        program.freeze()
        y = np.zeros(16, F32)
        program.run([], [y])
        assert y.tolist() == list(range(16))

    def test_primitive_outlives_its_python_object(self):
        program = relu_program()
        gc.collect()
        x = random(1, 16, 8, 8)
        y = np.empty_like(x)
        program.run([x], [y])
        np.testing.assert_array_equal(y, np.maximum(x, 0))

    def test_submemory_writes_its_box_only(self):
        whole = desc((1, 8, 2, 2), "acdb")
        part = whole.submemory([1, 3, 2, 2], [0, 5, 0, 0])
        dense = desc((1, 3, 2, 2))
        x = random(1, 3, 2, 2)
        program = core.Program(0, [], [x.nbytes], [whole.nbytes], THREADS)
        program.add_fill((OUTPUTS, 0, 0), whole.nbytes // 4, 9.0)
        program.add_primitive(
            core.reorder(dense, part).create(),
            [(core.ARG_SRC, dense, INPUTS, 0, 0), (core.ARG_DST, part, OUTPUTS, 0, 0)],
        )
        program.freeze()
        y = np.empty((1, 2, 2, 8), F32)
        program.run([x], [y])
        np.testing.assert_array_equal(y[..., 5:], x.transpose(0, 2, 3, 1))
        assert (y[..., :5] == 9).all()

    def test_threads_setting_is_restored(self):
        program = relu_program(threads=1)
        x = random(1, 16, 8, 8)
        program.run([x], [np.empty_like(x)])
        assert core.max_threads() == THREADS
        with pytest.raises(ValueError, match="bytes"):
            program.run([x[:, 1:].copy()], [np.empty_like(x)])
        assert core.max_threads() == THREADS

    @pytest.mark.parametrize("threads", [1, THREADS])
    def test_many_callers_at_once(self, threads: int):
        program, reference = chain_program(c=32, size=40, threads=threads)
        program.poison = True
        callers, failures = 8, []
        barrier = threading.Barrier(callers)

        def call(seed: int) -> None:
            x = random(1, 32, 40, 40, seed=seed)
            want, y = reference(x), np.empty_like(x)
            barrier.wait()
            for _ in range(30):
                y[:] = np.nan
                program.run([x], [y])
                if not np.allclose(y, want, rtol=1e-6):
                    failures.append(seed)

        workers = [threading.Thread(target=call, args=(seed,)) for seed in range(callers)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not failures
        assert 1 <= program.context_count <= callers

    def test_convolutions_with_scratchpads_at_once(self):
        x, w = random(1, 32, 12, 12, seed=1), random(32, 32, 3, 3, seed=2)
        d = desc(x.shape)
        pd = core.convolution(d, desc(w.shape, "any"), None, d, [1, 1], [1, 1], [1, 1], [1, 1])
        primitive = pd.create()
        assert primitive.scratchpad_nbytes > 0
        packed = core.prepack(w, desc(w.shape), pd.arg_desc(core.ARG_WEIGHTS), THREADS)
        program = core.Program(
            primitive.scratchpad_nbytes, [packed], [d.nbytes], [d.nbytes], THREADS
        )
        program.add_primitive(
            primitive,
            [
                (core.ARG_SRC, d, INPUTS, 0, 0),
                (core.ARG_WEIGHTS, pd.arg_desc(core.ARG_WEIGHTS), CONSTANTS, 0, 0),
                (core.ARG_DST, d, OUTPUTS, 0, 0),
                (core.ARG_SCRATCHPAD, pd.arg_desc(core.ARG_SCRATCHPAD), ARENA, 0, 0),
            ],
        )
        program.freeze()
        want, failures = convolve(x, w, pad=1), []

        def call() -> None:
            y = np.empty_like(x)
            for _ in range(10):
                program.run([x], [y])
                if not np.allclose(y, want, rtol=1e-3, atol=1e-3):
                    failures.append(y)

        workers = [threading.Thread(target=call) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not failures


class TestProfileAndTrace:
    def test_profile(self):
        program, reference = chain_program()
        x = random(1, 16, 10, 10)
        y = np.empty_like(x)
        samples = program.profile([x], [y], 5)
        assert [len(run) for run in samples] == [4] * 5
        assert all(ns >= 0 for run in samples for ns in run)
        np.testing.assert_allclose(y, reference(x), rtol=1e-6)

    def test_profile_needs_a_run(self):
        with pytest.raises(ValueError, match="runs: expected at least 1, got 0"):
            relu_program().profile([], [], 0)

    def test_trace_sees_the_arena_after_each_step(self):
        program, reference = chain_program()
        x = random(1, 16, 10, 10)
        y = np.empty_like(x)
        seen = []

        def after(step: int, arena: np.ndarray, outputs: list[np.ndarray]) -> None:
            assert outputs[0] is y
            seen.append((step, arena.view(F32).reshape(3, *x.shape).copy()))

        program.trace([x], [y], after)
        assert [step for step, _ in seen] == [0, 1, 2, 3]
        assert (seen[0][1][2] == 0.5).all()
        np.testing.assert_array_equal(seen[1][1][0], np.maximum(x, 0))
        np.testing.assert_allclose(seen[2][1][1] + 0.5, reference(x), rtol=1e-6)

    def test_arena_outlives_the_program(self):
        program, _ = chain_program()
        x = random(1, 16, 10, 10)
        kept = []
        program.trace([x], [np.empty_like(x)], lambda _step, arena, _outputs: kept.append(arena))
        del program
        gc.collect()
        assert (kept[0].view(F32)[-1]) == 0.5

    def test_exception_of_the_callback(self):
        program, reference = chain_program()
        x = random(1, 16, 10, 10)
        y = np.empty_like(x)

        def refuse(*_: Any) -> None:
            raise KeyError("stop")

        with pytest.raises(KeyError, match="stop"):
            program.trace([x], [y], refuse)
        program.run([x], [y])
        np.testing.assert_allclose(y, reference(x), rtol=1e-6)
        assert program.context_count == 1
