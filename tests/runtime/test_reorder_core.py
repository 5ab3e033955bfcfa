"""The native reorder by itself."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from stridewise.runtime.binding.library import load_core

# --- the native core by itself --------------------------------------------------------------------


def native(**changes: Any) -> Any:
    core = load_core()
    tile: dict[str, Any] = {
        "is_zero": False,
        "is_runs": False,
        "src": 0,
        "dst": 0,
        "scale": 0,
        "loops": [],
        "width": 1,
        "zeros": 0,
        "width_scale": 0,
        "rows": [0, 4],
        "row_scales": [0, 0],
        "columns": [0, 2, 4, 6],
        "column_scales": [],
    }
    options: dict[str, Any] = {
        "src_itemsize": 4,
        "dst_itemsize": 4,
        "conversion": None,
        "scales": [],
        "src_nbytes": 32,
        "dst_nbytes": 32,
        "fill_nbytes": 0,
        "isa": "portable",
    }
    tile |= {key: value for key, value in changes.items() if key in tile}
    options |= {key: value for key, value in changes.items() if key in options}
    return core.Reorder([(changes.get("around", []), [tile])], **options)


def test_the_core_transposes_a_small_matrix():
    src = np.arange(8, dtype=np.float32)
    dst = np.zeros(8, np.float32)
    assert native().run(src, dst, 1, False, False)
    np.testing.assert_array_equal(dst, src.reshape(2, 4).T.ravel())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src_nbytes": 28}, "a loop leaves the source"),
        ({"dst_nbytes": 28}, "a loop leaves the destination"),
        ({"rows": [0, -1]}, "a loop leaves the source"),
        ({"columns": [0, 2, 4, 7]}, "a loop leaves the destination"),
        ({"rows": []}, "expected rows and columns"),
        ({"width": 0}, "expected runs of at least one element"),
        ({"zeros": 1}, "a loop leaves the destination"),
        ({"width": 3, "src_nbytes": 999, "dst_nbytes": 999}, "no kernel for this width"),
        ({"loops": [(2, 8, 8, 0)]}, "a loop leaves the source"),
        ({"loops": [(0, 0, 0, 0)]}, "loops of at least one round"),
        ({"around": [(2**62, 2**62, 0, 0)]}, "an offset is out of range"),
        ({"row_scales": [0]}, "one scale for each row and column"),
        ({"src_itemsize": 2}, "one itemsize where nothing is converted"),
        ({"conversion": ("f32", "f64")}, "conversion: expected f32, f16, bf16, s8, u8 or s32"),
        ({"scales": [[1.0]]}, "scales: expected none or four lists"),
        ({"scales": [[1.0], [1.0], [1.0], [1.0]]}, "scales and zero points of one size"),
        (
            {"conversion": ("f32", "f32"), "scales": [[1.0] * 2] * 4, "row_scales": [0, 2]},
            "a loop leaves the scales",
        ),
        ({"fill_nbytes": 64}, "expected sizes of at least 0"),
        ({"isa": "abacus"}, "isa: expected one that reorder_isas() lists, got 'abacus'"),
    ],
)
def test_the_core_refuses_what_would_leave_memory(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        native(**changes)


def test_the_core_refuses_arrays_that_are_too_small_or_overlap():
    run = native()
    x = np.zeros(8, np.float32)
    with pytest.raises(ValueError, match="src: expected at least 32 bytes, got 16"):
        run.run(x[:4], np.zeros(8, np.float32), 1, False, False)
    with pytest.raises(ValueError, match="dst: expected at least 32 bytes, got 16"):
        run.run(x, np.zeros(4, np.float32), 1, False, False)
    assert not run.run(x, x, 1, False, False)
