"""Everything up to the planner works without native code."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from stridewise.runtime.binding.library import load_core


def test_planning_loads_no_native_code():
    code = """
        import sys
        import stridewise as sw
        from stridewise.passes import passes_for, simplify
        from stridewise.planner import derive
        from stridewise.planning import make_plan
        from stridewise.targets.cost import Roofline
        from stridewise.targets.machine import Machine
        from stridewise.targets.onednn.target import ABILITY, onednn_cpu

        b = sw.GraphBuilder("tiny")
        graph = b.build([b.op("relu", [b.input("x", (1, 3))])])
        machine = Machine("some", "AVX2", 1, "none")
        target = onednn_cpu(machine)
        oracle = Roofline(1e11, 1e10, target.efficiency)
        simple = simplify(graph, passes_for(ABILITY)).graph
        plan = make_plan(derive(simple), target, machine, oracle)
        assert plan.decisions
        loaded = [name for name in sys.modules if name.split(".")[-1] == "_core"]
        assert not [name for name in loaded if name.startswith("stridewise")], loaded
        with open("/proc/self/maps") as maps:
            assert "libdnnl" not in maps.read()
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_pure_test_cannot_get_at_the_native_core():
    with pytest.raises(AssertionError, match="asked for the native core"):
        load_core()
