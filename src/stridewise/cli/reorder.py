"""``stridewise reorder``: convert an array in a file to another memory format."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from stridewise.cli.console import output_file
from stridewise.cli.formats import columns, parse_extents
from stridewise.cli.outputs import Command
from stridewise.dtypes import DType, dtype_of
from stridewise.errors import InputError, ModelError
from stridewise.formats import Parameters, parse
from stridewise.runtime.reorder.reorder import Reorder
from stridewise.tensor.desc import TensorDesc
from stridewise.tensor.quantization import Quantization
from stridewise.tensor.reorder import Endpoint, pair

__all__ = ["reorder"]

Array = NDArray[Any]

_RUNS = 5
_SECONDS = 1.0
_INTEGERS = ("s8", "u8", "s32")
_BITS = dtype_of("uint16")
"""What files hold in place of bfloat16, which the .npy format cannot name."""


# --- files ----------------------------------------------------------------------------------------


def _load(path: Path) -> Array:
    """Return the array of a .npy file, C-contiguous and of native byte order.

    Raises:
        InputError: there is no such file, or it is not a whole array of numbers.
    """
    where, why = f"input {path}", ""
    loaded: Any = None
    try:
        with path.open("rb") as file:
            if file.read(6) == b"\x93NUMPY":
                file.seek(0)
                loaded = np.load(file, allow_pickle=False)
    except FileNotFoundError:
        why = "no such file"
    except (OSError, ValueError, EOFError) as error:
        why = str(error)
    if loaded is None:
        raise InputError.at(where, expected="a .npy file", found=why or "another file")
    array: Array = np.asarray(loaded, loaded.dtype.newbyteorder("="), order="C")
    return array


def _typed(path: Path, array: Array, dtype: str | None) -> Array:
    """Return an array as what its elements are, which a .npy file cannot always say.

    Raises:
        InputError: the type is unknown, or is not the one that the file names.
    """
    where = f"input {path}"
    if dtype is not None and _dtype(dtype, "--from-dtype").name == "bfloat16":
        if array.dtype.itemsize == _BITS.itemsize and array.dtype.kind in "uV":
            return array.view(dtype_of("bf16").numpy)
        raise InputError.at(where, expected="2 bytes an element, as uint16", found=str(array.dtype))
    if dtype is not None and _dtype(dtype, "--from-dtype").numpy != array.dtype:
        raise InputError.at(where, expected=dtype, found=str(array.dtype))
    if array.dtype.kind == "V":
        raise InputError.at(
            where,
            expected="an array of numbers",
            found=str(array.dtype),
            fix="give --from-dtype bfloat16 if that is what it holds",
        )
    return array


def _dtype(name: str, option: str) -> DType:
    try:
        return dtype_of(name)
    except ModelError as error:
        raise InputError(f"{option}: {error}") from error


def _save(path: Path, array: Array) -> None:
    stored = array.view(_BITS.numpy) if array.dtype.name == "bfloat16" else array
    with output_file(path, "output") as file:
        np.lib.format.write_array(file, stored, allow_pickle=False)


# --- options --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Options:
    """The values of the options, under the names of the parameters."""

    src: str
    dst: str
    from_dialect: str | None
    to_dialect: str | None
    shape: str | None
    dtype: str | None
    from_dtype: str | None
    scale: float | None
    zero_point: int | None
    threads: int | None
    cache_dir: Path | None

    def prepare(self, array: Array) -> Reorder:
        """Return the reorder of an array.

        Raises:
            FormatError: the array is not in the format, or the two do not fit.
            InputError: an option does not make sense.
        """
        have = _dtype(array.dtype.name, "the array")
        want = have if self.dtype is None else _dtype(self.dtype, "--dtype")
        shape = None if self.shape is None else parse_extents(self.shape)
        rank = array.ndim if shape is None else len(shape)
        src = _endpoint(self.src, self.from_dialect, have, rank)
        dst = _endpoint(self.dst, self.to_dialect, want, rank)
        sides = pair(array.shape, have, src, dst, shape=shape, dst_dtype=want)
        scales = _quantization(*sides, self.scale, self.zero_point)
        return Reorder(
            *sides,
            src_quantization=scales[0],
            dst_quantization=scales[1],
            threads=self.threads,
            cache_dir=self.cache_dir,
        )


def _endpoint(text: str, dialect: str | None, dtype: DType, rank: int) -> Endpoint:
    return text if dialect is None else parse(text, dialect, Parameters(dtype, rank=rank))


def _quantization(
    src: TensorDesc, dst: TensorDesc, scale: float | None, zero_point: int | None
) -> tuple[Quantization | None, Quantization | None]:
    """Return scale and zero point as those of the one side whose elements are integers.

    Raises:
        InputError: neither side has integers, or both have.
    """
    if scale is None and zero_point is None:
        return None, None
    whole = [side.dtype.short in _INTEGERS for side in (src, dst)]
    if whole[0] == whole[1]:
        raise InputError.at(
            "--scale and --zero-point",
            expected="integers (int8, uint8, int32) on one side of the reorder",
            found=f"{src.dtype} and {dst.dtype}",
            fix="give the element type of the result with --dtype",
        )
    given = Quantization(1.0 if scale is None else scale, zero_point or 0)
    return (given, None) if whole[0] else (None, given)


@dataclass(frozen=True, slots=True)
class _Moved:
    """An array in its new format, and how it got there."""

    array: Array
    engine: str
    seconds: float


def _move(prepared: Reorder, array: Array) -> _Moved:
    """Move an array; the first run also finds the engine, the time is the best of the others."""
    out = prepared(array)
    best, end = float("inf"), time.perf_counter() + _SECONDS
    for _ in range(_RUNS):
        start = time.perf_counter()
        if start > end:
            break
        prepared(array, out)
        best = min(best, time.perf_counter() - start)
    return _Moved(out, prepared.engine, best)


def _report(prepared: Reorder, moved: _Moved) -> dict[str, Any]:
    nbytes = prepared.src.nbytes + prepared.dst.nbytes
    sides = {
        side: {
            "format": desc.storage.format.name,
            "dtype": desc.dtype.name,
            "shape": list(desc.storage.shape),
            "bytes": desc.nbytes,
        }
        for side, desc in (("from", prepared.src), ("to", prepared.dst))
    }
    return {
        "tensor": dict(zip(prepared.src.origin.format.axes, prepared.src.shape, strict=True)),
        **sides,
        "engine": moved.engine,
        "threads": prepared.threads,
        "us": 1e6 * moved.seconds,
        "gb_per_s": nbytes / max(moved.seconds, 1e-9) / 1e9,
    }


def _lines(report: dict[str, Any]) -> str:
    def side(key: str) -> str:
        found = report[key]
        shape = "x".join(map(str, found["shape"])) or "scalar"
        return f"{found['format']}, {found['dtype']} {shape}, {found['bytes']} bytes"

    speed = f"{report['us']:.1f} us, {report['gb_per_s']:.2f} GB/s read and written"
    rows = [
        ("tensor", " ".join(f"{axis}={n}" for axis, n in report["tensor"].items())),
        ("from", side("from")),
        ("to", side("to")),
        ("moved in", f"{speed}, engine {report['engine']}, threads {report['threads']}"),
    ]
    return columns(rows)


@click.command(cls=Command)
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("destination", type=click.Path(path_type=Path))
@click.option("--from", "src", required=True, metavar="NCHW", help="Format of the array.")
@click.option("--to", "dst", required=True, metavar="nChw16c", help="Format of the result.")
@click.option("--from-dialect", help="Dialect of --from; see `stridewise formats list`.")
@click.option("--to-dialect", help="Dialect of --to.")
@click.option("--shape", metavar="1,3,224,224", help="Logical shape, if the array has padding.")
@click.option("--dtype", help="Element type of the result; default: that of the array.")
@click.option("--from-dtype", help="Element type of the array, if the file cannot represent it.")
@click.option(
    "--scale", type=float, help="Quantization scale of the integers: of the array or of the result."
)
@click.option(
    "--zero-point", type=int, help="Quantization zero point of these integers; default: 0."
)
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    help="Number of threads; `stridewise info` shows the default.",
)
@click.option("--cache-dir", type=click.Path(path_type=Path), help="Folder of the cost cache.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def reorder(source: Path, destination: Path, as_json: bool, **options: Any) -> None:
    """Convert the array in a .npy file to another memory format.

    The array has the shape of its storage. A .npy file cannot represent bfloat16: such arrays are
    saved as uint16 with the same bits. Read them with --from-dtype bfloat16.
    """
    given = _Options(**options)
    array = _typed(source, _load(source), given.from_dtype)
    prepared = given.prepare(array)
    moved = _move(prepared, array)
    _save(destination, moved.array)
    report = _report(prepared, moved)
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    click.echo(_lines(report))
    as_bits = " as uint16, the bits of bfloat16" if prepared.dst.dtype.name == "bfloat16" else ""
    click.echo(f"saved to {destination}{as_bits}")
