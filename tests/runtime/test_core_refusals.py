"""What the native core refuses."""

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
    core,
    desc,
    random,
    relu_program,
)


class TestRefusals:
    """Whatever would read or write out of bounds must never get as far as running."""

    d = desc((1, 16, 4, 4))
    n = 1024

    def program(self, arena: int = 2048) -> Any:
        return core.Program(arena, [np.zeros(256, F32)], [self.n], [self.n], THREADS)

    def relu(self, threads: int = THREADS) -> Any:
        return core.eltwise("relu", self.d, self.d, threads=threads).create()

    def args(self, src=(INPUTS, 0, 0), dst=(OUTPUTS, 0, 0), dst_desc: Any = None):
        return [
            (core.ARG_SRC, self.d, *src),
            (core.ARG_DST, dst_desc or self.d, *dst),
        ]

    @pytest.mark.parametrize(
        ("places", "message"),
        [
            ({"src": (ARENA, 0, 1028)}, "1024 bytes at offset 1028 do not fit into the 2048 bytes"),
            ({"src": (ARENA, 0, 2**62)}, "do not fit into the 2048 bytes of arena"),
            ({"src": (INPUTS, 0, 4)}, r"do not fit into the 1024 bytes of inputs\[0\]"),
            ({"src": (INPUTS, 1, 0)}, r"step 0: there is no inputs\[1\]"),
            ({"src": (CONSTANTS, 1, 0)}, r"step 0: there is no constants\[1\]"),
            ({"dst": (OUTPUTS, 7, 0)}, r"step 0: there is no outputs\[7\]"),
            ({"dst": (CONSTANTS, 0, 0)}, r"constants\[0\] is read only"),
            ({"dst": (INPUTS, 0, 0)}, r"inputs\[0\] is read only"),
            ({"src": (6, 0, 0)}, "space: expected 0 .*, got 6"),
            ({"src": (-1, 0, 0)}, "space: expected 0 .*, got -1"),
            ({"src": (INPUTS, -1, 0)}, "index: expected at least 0"),
            ({"src": (INPUTS, 0, -4)}, "offset_bytes: expected at least 0"),
            ({"dst_desc": desc((1, 16, 4, 4), "acdb")}, "argument 17 expected MemoryDesc"),
        ],
    )
    def test_places(self, places: dict[str, Any], message: str):
        program = self.program()
        with pytest.raises(ValueError, match=message):
            program.add_primitive(self.relu(), self.args(**places))
        assert program.step_count == 0

    def test_submemory_counts_its_offset(self):
        part = desc((1, 32, 4, 4)).submemory([1, 16, 4, 4], [0, 16, 0, 0])
        primitive = core.reorder(self.d, part).create()
        args = self.args(dst=(ARENA, 0, 0), dst_desc=part)
        self.program(2048).add_primitive(primitive, args)
        with pytest.raises(ValueError, match="2048 bytes at offset 0 do not fit into the 2047"):
            self.program(2047).add_primitive(primitive, args)

    def test_missing_and_surplus_arguments(self):
        program, args = self.program(), self.args()
        with pytest.raises(ValueError, match="expected argument 17 once, got it 0 times"):
            program.add_primitive(self.relu(), args[:1])
        with pytest.raises(ValueError, match="expected argument 1 once, got it 2 times"):
            program.add_primitive(self.relu(), [*args, args[0]])
        with pytest.raises(ValueError, match="expected 2 arguments, got 3"):
            program.add_primitive(self.relu(), [*args, (99, self.d, INPUTS, 0, 0)])

    def test_missing_scratchpad_and_operand(self):
        d = desc((1, 16, 4, 4))
        window = ([1, 1], [1, 1], [1, 1], [1, 1])
        ops = [("binary", "add", desc((1, 16, 1, 1)))]
        pd = core.convolution(d, desc((16, 16, 3, 3)), None, d, *window, ops)
        primitive = pd.create()
        places = {core.ARG_SRC: INPUTS, core.ARG_DST: OUTPUTS}
        args = [(a, pd.arg_desc(a), places.get(a, CONSTANTS), 0, 0) for a in pd.args]
        program = core.Program(0, [np.zeros(2304, F32)], [1024], [1024], THREADS)
        assert pd.scratchpad_nbytes > 0
        with pytest.raises(ValueError, match=f"argument {core.ARG_SCRATCHPAD} once, got it 0"):
            program.add_primitive(primitive, args)
        with pytest.raises(ValueError, match=f"argument {core.post_op_arg(0)} once, got it 0"):
            program.add_primitive(primitive, args[:-1])

    def test_other_number_of_threads(self):
        with pytest.raises(ValueError, match="expected a primitive made for threads="):
            self.program().add_primitive(self.relu(THREADS + 1), self.args())

    @pytest.mark.parametrize("threads", [0, -1])
    def test_wrong_number_of_threads(self, threads: int):
        with pytest.raises(ValueError, match="threads: expected at least 1"):
            core.Program(0, [], [], [], threads)

    @pytest.mark.parametrize(
        ("dst", "src", "nbytes", "message"),
        [
            ((ARENA, 0, 0), (INPUTS, 0, 0), 1025, "do not fit"),
            ((ARENA, 0, 2000), (INPUTS, 0, 0), 1024, "do not fit"),
            ((ARENA, 0, 0), (INPUTS, 0, 0), -1, "nbytes: expected at least 0"),
            ((INPUTS, 0, 0), (ARENA, 0, 0), 4, "read only"),
            ((ARENA, 0, 0), (ARENA, 1, 8), 16, "overlaps itself"),
            ((ARENA, 0), (ARENA, 0, 8), 16, "dst: expected 3 values, got 2"),
        ],
    )
    def test_copies(self, dst: Any, src: Any, nbytes: int, message: str):
        with pytest.raises(ValueError, match=message):
            self.program().add_copy(dst, src, nbytes)

    @pytest.mark.parametrize(
        ("dst", "count", "message"),
        [
            ((ARENA, 0, 0), 513, "do not fit"),
            ((ARENA, 0, 2), 1, "expected a multiple of 4"),
            ((CONSTANTS, 0, 0), 1, "read only"),
            ((ARENA, 0, 0), 2**62, "do not fit|too many values"),
        ],
    )
    def test_fills(self, dst: Any, count: int, message: str):
        with pytest.raises(ValueError, match=message):
            self.program().add_fill(dst, count, 0.0)

    def test_frozen_programs_do_not_change(self):
        program = self.program()
        with pytest.raises(RuntimeError, match=r"not frozen: call freeze\(\) before running"):
            program.run([np.zeros(256, F32)], [np.zeros(256, F32)])
        program.freeze()
        for add in (
            lambda: program.add_primitive(self.relu(), self.args()),
            lambda: program.add_copy((ARENA, 0, 0), (INPUTS, 0, 0), 4),
            lambda: program.add_fill((ARENA, 0, 0), 1, 0.0),
        ):
            with pytest.raises(RuntimeError, match="the program is frozen"):
                add()

    @pytest.mark.parametrize(
        ("inputs", "outputs", "message"),
        [
            ([], [np.zeros(256, F32)], "inputs: expected 1 arrays, got 0"),
            ([np.zeros(256, F32)], [], "outputs: expected 1 arrays, got 0"),
            ([np.zeros(255, F32)], [np.zeros(256, F32)], r"inputs\[0\]: expected 1024 bytes"),
            ([np.zeros(256, F32)], [np.zeros(257, F32)], r"outputs\[0\]: expected 1024 bytes"),
            ([np.zeros(512, F32)[::2]], [np.zeros(256, F32)], "inputs: expected a C-contiguous"),
            ([[0.0] * 256], [np.zeros(256, F32)], "inputs: expected a C-contiguous array, got"),
            ([np.zeros(256, F32)], [np.zeros((256, 2), F32)[:, 0]], "outputs: expected"),
        ],
    )
    def test_arrays_of_a_run(self, inputs: Any, outputs: Any, message: str):
        program = relu_program((1, 16, 4, 4))
        with pytest.raises(ValueError, match=message):
            program.run(inputs, outputs)

    def test_arrays_that_are_no_list(self):
        with pytest.raises(TypeError, match="expected a list of arrays"):
            relu_program((1, 16, 4, 4)).run(3, [])

    def test_read_only_output(self):
        x, y = random(1, 16, 4, 4), random(1, 16, 4, 4)
        y.flags.writeable = False
        with pytest.raises(ValueError, match="outputs: expected a writable C-contiguous array"):
            relu_program((1, 16, 4, 4)).run([x], [y])

    def test_arrays_that_overlap(self):
        memory = np.zeros(300, F32)
        with pytest.raises(ValueError, match=r"outputs\[0\]: shares memory with another array"):
            relu_program((1, 16, 4, 4)).run([memory[:256]], [memory[44:]])

    def test_constants_must_be_arrays(self):
        with pytest.raises(ValueError, match=r"constants\[1\]: expected a C-contiguous array"):
            core.Program(0, [core.Buffer(4), "text"], [], [], THREADS)

    def test_negative_sizes(self):
        for arguments in ((-1, [], [], []), (0, [], [-1], []), (0, [], [], [-1])):
            with pytest.raises(ValueError, match="expected at least 0, got -1"):
                core.Program(*arguments, THREADS)
