"""Time and error of networks of the zoo in float32, bfloat16, mixed precision and int8.

Run it on a quiet machine; it takes less than 12 minutes::

    .venv/bin/python benchmarks/precision.py
    .venv/bin/python benchmarks/precision.py --all --minutes 60
    .venv/bin/python benchmarks/precision.py resnet50 --batch 16 --no-torch

Stridewise runs with ``dtype="float32"``, ``"bfloat16"``, and ``"auto"`` for each budget, with
calibration; OpenVINO in float32, in bfloat16, and as it is without a hint; ONNX Runtime in float32;
PyTorch in bfloat16. The int8 model that ``sw.quantize`` writes runs in all three that read files.
They are timed as in ``models.py``: in one process, in turn, each after an untimed run of its own.

Errors are norms of the difference to ONNX Runtime's float32 outputs, over the norm of these, on
images that were used neither for calibration nor to check budgets. Raw samples are written to
``results/precision.json``, the table to ``precision.md``, and error against time to
``precision.svg``. ``--report`` writes the table and the drawing of the results that exist.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from math import nan
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from charts import Axis, Panel, Series, chart
from model_tables import table
from models import MODELS, race
from peers import openvino_config
from peers.torch_module import channels_last, to_torch

import stridewise as sw
from stridewise.runtime.machine.machine import this_machine

RESULTS = Path(__file__).parent / "results" / "precision.json"
BUDGETS = (1e-5, 1e-3, 1e-2, 3e-2)
DEFAULT = (
    "resnet18",
    "mobilenet_v2",
    "squeezenet1_1",
    "shufflenet_v2",
    "resnet50",
    "efficientnet_b0",
)
INT8 = (*DEFAULT, "densenet121")
CALIBRATION, IMAGES = 12, 4
_AREA = 40.0

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[Array], Array]
Options = argparse.Namespace
Rows = Sequence[Mapping[str, Any]]
Load = Callable[[sw.Graph, Path, Path, Options], dict[str, Run]]
Conclude = Callable[[Rows], list[str]]


def images(graph: sw.Graph, count: int, seed: int) -> list[Array]:
    """Return images with large and small structures."""
    (name,) = graph.inputs
    n, c, h, w = graph.values[name].shape
    rng = np.random.default_rng(seed)
    found: list[Array] = []
    for _ in range(count):
        coarse = rng.standard_normal((n, c, -(-h // 16), -(-w // 16)), np.float32)
        large = np.kron(coarse, np.ones((1, 1, 16, 16), np.float32))[:, :, :h, :w]
        found.append(large + 0.5 * rng.standard_normal((n, c, h, w), np.float32))
    return found


def ours(path: Path, options: Options, **more: Any) -> Run:
    """Compile a file with Stridewise."""
    model = sw.compile(path, threads=options.threads, tune=options.tune, **more)
    return lambda x: np.asarray(model(x))


def by_onnxruntime(path: Path, options: Options) -> Run:
    """Load a file into ONNX Runtime."""
    module: Any = importlib.import_module("onnxruntime")
    settings = module.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = module.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x})[0]


def by_openvino(path: Path, options: Options, hint: str | None) -> Run:
    """Load a file into OpenVINO; without a hint it picks the precision."""
    module: Any = importlib.import_module("openvino")
    config = openvino_config(options.threads)
    del config["INFERENCE_PRECISION_HINT"]
    if hint is not None:
        config["INFERENCE_PRECISION_HINT"] = hint
    compiled = module.Core().compile_model(path, "CPU", config)
    request = compiled.create_infer_request()
    return lambda x: request.infer([x], share_inputs=True)[compiled.outputs[0]].copy()


def by_torch(graph: sw.Graph, options: Options) -> Run:
    """Make a PyTorch module in bfloat16, channels-last."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(options.threads)
    module = to_torch(graph).to(torch.bfloat16)

    def run(x: Array) -> Array:
        with torch.inference_mode():
            found = module(channels_last(torch.from_numpy(x).to(torch.bfloat16)))
        return found[0].float().numpy()

    return run


def contestants(graph: sw.Graph, path: Path, folder: Path, options: Options) -> dict[str, Run]:
    """Return all runtimes and precisions of one model, each loaded."""
    quantized, calibration = folder / "int8.onnx", images(graph, CALIBRATION, 1)
    sw.quantize(path, calibration, quantized, method="minmax", threads=options.threads)
    samples = [{graph.inputs[0]: x} for x in calibration]
    found = {
        "stridewise float32": ours(path, options),
        "stridewise bfloat16": ours(path, options, dtype="bfloat16"),
        **{
            f"stridewise auto {budget:g}": ours(
                path, options, dtype="auto", max_error=budget, calibration=samples
            )
            for budget in BUDGETS
        },
        "stridewise int8": ours(quantized, options),
        "openvino float32": by_openvino(path, options, "f32"),
        "openvino bfloat16": by_openvino(path, options, "bf16"),
        "openvino default": by_openvino(path, options, None),
        "openvino int8": by_openvino(quantized, options, None),
        "onnxruntime float32": by_onnxruntime(path, options),
        "onnxruntime int8": by_onnxruntime(quantized, options),
    }
    if not options.no_torch:
        found["torch bfloat16"] = by_torch(graph, options)
    return found


def errors(runs: Mapping[str, Run], held_out: Sequence[Array]) -> dict[str, float]:
    """Return the relative error of each contestant."""
    right = np.stack([runs["onnxruntime float32"](x) for x in held_out])
    found = {name: np.stack([run(x) for x in held_out]) for name, run in runs.items()}
    norm = float(np.linalg.norm(right))
    return {name: float(np.linalg.norm(ys - right)) / norm for name, ys in found.items()}


def look_at(name: str, options: Options, load: Load) -> dict[str, Any]:
    """Load, time and compare one model."""
    size = {} if options.size is None else {"size": options.size}
    with TemporaryDirectory() as folder:
        graph = sw.zoo.build(name, options.batch, **size)
        path = Path(folder) / "model.onnx"
        sw.save(graph, path)
        runs = load(graph, path, Path(folder), options)
        (x,) = images(graph, 1, 2)
        runners = {who: (lambda run=run: (run(x),)) for who, run in runs.items()}
        samples = race(runners, options.runs, options.pause, cold=False)
        wrong = errors(runs, images(graph, IMAGES, 3))
    return {
        "model": name,
        "batch": options.batch,
        "size": options.size,
        "date": date.today().isoformat(),
        "machine": str(this_machine(options.threads)),
        "samples_ms": samples,
        "errors": wrong,
    }


def report(rows: Rows, conclude: Conclude) -> str:
    """Return tables: median milliseconds and error of each contestant, and what follows of them."""
    names = list(dict.fromkeys(name for row in rows for name in row["samples_ms"]))
    lines = [
        [
            f"{row['model']}, batch {row['batch']}",
            *(
                f"{median(row['samples_ms'][name]):.2f}; {row['errors'][name]:.1e}"
                if name in row["samples_ms"]
                else ""
                for name in names
            ),
        ]
        for row in rows
    ]
    head = "Milliseconds (median) and relative error to float32.\n\n"
    return "\n".join((head + "\n".join(table(["network", *names], lines)), "", *conclude(rows), ""))


def claims(rows: Rows) -> list[str]:
    """Return a table of automatic beside the best uniform precision, and of int8 beside peers."""
    lines: list[list[str]] = []
    for row in rows:
        times = {name: median(samples) for name, samples in row["samples_ms"].items()}
        errors_, line = row["errors"], [f"{row['model']}, batch {row['batch']}"]
        for budget in BUDGETS:
            name = f"stridewise auto {budget:g}"
            uniform = [
                times[f"stridewise {dtype}"]
                for dtype in ("float32", "bfloat16")
                if errors_[f"stridewise {dtype}"] <= budget
            ]
            if name not in times:
                line.append("no plan")
                continue
            kept = "" if errors_[name] <= budget else ", above the budget"
            line.append(f"{min(uniform, default=nan) / times[name]:.2f}{kept}")
        peers = min(times["onnxruntime int8"], times["openvino int8"])
        line.append(f"{times['stridewise bfloat16'] / times['stridewise auto 0.01']:.2f}")
        line.append(f"{peers / times['stridewise int8']:.2f}")
        line.append(f"{times['openvino bfloat16'] / times['stridewise bfloat16']:.2f}")
        lines.append(line)
    head = [
        "network",
        *(f"best uniform / auto {budget:g}" for budget in BUDGETS),
        *("bfloat16 / auto 0.01", "best peer int8 / int8", "OpenVINO bfloat16 / bfloat16"),
    ]
    note = "Ratios of median times, above 1 where Stridewise's second one is faster.\n"
    return [note, *table(head, lines)]


def figure(rows: Rows) -> str:
    """Return error against time, relative to the fastest float32, as SVG; int8 included."""
    points: dict[str, list[tuple[float, float, float]]] = {}
    for row in rows:
        times = {name: median(samples) for name, samples in row["samples_ms"].items()}
        fastest = min(ms for name, ms in times.items() if name.endswith("float32"))
        for name, ms in times.items():
            group = "stridewise auto" if "auto" in name else name
            if not name.endswith("float32"):
                points.setdefault(group, []).append((ms / fastest, row["errors"][name], _AREA))
    series = tuple(
        Series(name, tuple(found), look) for look, (name, found) in enumerate(points.items())
    )
    across = Axis("time, 1 is the fastest float32", 0.1, 2.0, (0.1, 0.2, 0.5, 1, 2))
    up = Axis("relative error of the outputs", 1e-4, 1.0, (1e-4, 1e-3, 1e-2, 1e-1, 1))
    panel = Panel("Error against time", across, up, series)
    return chart([panel], "Relative error of the outputs against relative time of networks")


def write(rows: Rows, path: Path, conclude: Conclude) -> None:
    """Write results, their tables and their drawing."""
    path.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    path.with_suffix(".md").write_text(report(rows, conclude))
    path.with_suffix(".svg").write_text(figure(rows))


def main(
    load: Load = contestants,
    conclude: Conclude = claims,
    results: Path = RESULTS,
    usual: Sequence[str] = DEFAULT,
) -> None:
    """Measure, save and print.

    Args:
        load: loads all contestants of one model.
        conclude: returns the lines of what follows of the results.
        results: where these are written.
        usual: names of the models, if the user names none.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of the zoo")
    parser.add_argument("--all", action="store_true", help="all networks")
    parser.add_argument("--int8", action="store_true", help="the networks of the goals for int8")
    parser.add_argument(
        "--minutes", type=float, default=12.0, help="no network is begun that may end later"
    )
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, help="pixels a side, by default the model's own")
    parser.add_argument("--runs", type=int, default=20, help="rounds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds before each turn")
    parser.add_argument("--tune", choices=("auto", "measure", "model"), default="auto")
    parser.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    parser.add_argument("--results", type=Path, default=results)
    options = parser.parse_args()
    path = options.results
    rows: list[Any] = json.loads(path.read_text())["rows"] if path.exists() else []
    chosen = options.models or (MODELS if options.all else INT8 if options.int8 else usual)
    begin = time.monotonic()
    longest = 0.0
    for name in () if options.report else chosen:
        if time.monotonic() - begin + longest > 60 * options.minutes:
            print(f"{name} and what follows: left out, --minutes {options.minutes:g} are over")
            break
        now = time.monotonic()
        row = look_at(name, options, load)
        longest = max(longest, time.monotonic() - now)
        key = (name, options.batch, options.size)
        rows = [r for r in rows if (r["model"], r["batch"], r["size"]) != key] + [row]
        write(rows, path, conclude)
        times = {who: f"{median(ms):.2f} ms" for who, ms in row["samples_ms"].items()}
        print(f"{name} ({time.monotonic() - now:.0f} s)")
        print("\n".join(f"  {w:<28} {t:>10} {row['errors'][w]:.1e}" for w, t in times.items()))
    write(rows, path, conclude)
    print("\n".join(conclude(rows)))


if __name__ == "__main__":
    main()
