"""What a program says about its arena: blocks that hold what the steps touch, while they do."""

from __future__ import annotations

from itertools import combinations

from stridewise.program import KernelStep, Program, Ref

__all__ = ["check_arena"]


def touched(program: Program, index: int) -> list[Ref]:
    """The places in the arena that a step reads or writes."""
    step = program.steps[index]
    if isinstance(step, KernelStep):
        refs = [binding.ref for binding in step.bindings]
    else:
        refs = [step.target, *([step.source] if hasattr(step, "source") else [])]
    return [ref for ref in refs if ref.space == "arena"]


def check_steps(program: Program) -> None:
    for index, step in enumerate(program.steps):
        alive = [block for block in program.blocks if block.first <= index <= block.last]
        for ref in touched(program, index):
            assert any(b.offset <= ref.offset < b.offset + b.nbytes for b in alive), str(step)
        for written in step.written:
            if written.ref.space == "arena":
                tensors = [t for block in alive for t in block.tensors]
                assert (written.value, written.ref.offset) in [(t.value, t.offset) for t in tensors]


def check_blocks(program: Program) -> None:
    for block in program.blocks:
        assert 0 <= block.first <= block.last < len(program.steps)
        assert block.offset + block.nbytes <= program.arena_nbytes
        assert bool(block.tensors) != bool(block.node)
        for tensor in block.tensors:
            assert block.offset <= tensor.offset
            assert tensor.offset + tensor.desc.nbytes <= block.offset + block.nbytes
            assert block.first <= tensor.first <= tensor.last <= block.last
    for a, b in combinations(program.blocks, 2):
        if a.first <= b.last and b.first <= a.last:
            assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset


def check_arena(program: Program) -> None:
    """Check that blocks hold what steps touch, while they do, and share no byte."""
    check_steps(program)
    check_blocks(program)
