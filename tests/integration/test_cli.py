"""The command line: facts, runs, benchmarks, and processes of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import numpy as np
import pytest

import stridewise as sw
from stridewise.cli.main import cli
from stridewise.frontends.onnx.fallback import runtime as onnx_runtime

from .commands import (
    Done,
    Run,
    fails,
    image,
    model,
    own_cache,
    run,
    saved,
    start,
)
from .models import light_models
from .onnx_nodes import make, node

__all__ = ["image", "model", "own_cache", "run"]

# --- info -----------------------------------------------------------------------------------------

FACTS = ("stridewise", "cpu", "isa", "threads", "libdnnl", "libdnnl version", "libdnnl threading",
         "cost cache", "cost cache bytes")  # fmt: skip
THREAD_FACTS = ("threads source", "thread limits", "thread limits ignored")


def test_info_prints_every_fact(run: Run, tmp_path: Path) -> None:
    done = run("info")
    assert (done.status, done.err) == (0, "")
    for fact in FACTS:
        assert fact in done.out
    assert str(tmp_path / "cache" / "stridewise" / "costs-v1.sqlite") in done.out


def test_info_as_json(run: Run) -> None:
    facts = run("info", "--json").json
    assert tuple(facts) == (*FACTS, *THREAD_FACTS)
    assert facts["stridewise"] == sw.__version__
    assert facts["cost cache bytes"] == 0
    assert facts["threads"] >= 1
    assert Path(facts["libdnnl"]).is_file()


def test_info_says_what_decided_the_number_of_threads() -> None:
    own = {"OMP_NUM_THREADS": "1,4", "OMP_THREAD_LIMIT": "many"}
    text = start("info", env={**os.environ, **own})
    assert (
        "threads           1 (OMP_NUM_THREADS; OMP_THREAD_LIMIT='many' is ignored)\n" in text.stdout
    )
    facts = json.loads(start("info", "--json", env={**os.environ, **own}).stdout)
    assert (facts["threads"], facts["threads source"]) == (1, "OMP_NUM_THREADS")
    assert facts["thread limits"]["OMP_NUM_THREADS"] == 1
    assert facts["thread limits"]["CPU affinity"] == len(os.sched_getaffinity(0))
    assert facts["thread limits ignored"] == ["OMP_THREAD_LIMIT='many'"]


def test_info_says_what_is_wrong_with_the_library(tmp_path: Path) -> None:
    missing = tmp_path / "libdnnl.so.3"
    done = start("info", env={**os.environ, "STRIDEWISE_LIBDNNL": str(missing)})
    fails(Done(done.returncode, done.stdout, done.stderr), "STRIDEWISE_LIBDNNL", str(missing))


# --- run ------------------------------------------------------------------------------------------


def test_run_prints_a_line_for_each_output(run: Run, model: Path) -> None:
    done = run("run", model, "--random", "--tune", "model")
    assert (done.status, done.err) == (0, "")
    assert "1x8x8x8" in done.out
    assert "float32" in done.out


def test_run_with_random_inputs_depends_on_the_seed_only(run: Run, model: Path) -> None:
    options = ("run", model, "--random", "--tune", "model", "--json")
    assert run(*options).out == run(*options, "--seed", 0).out
    assert run(*options).out != run(*options, "--seed", 1).out


@pytest.mark.parametrize("form", ["x={}", "{}"], ids=["named", "alone"])
def test_run_saves_what_the_api_gives(
    run: Run, model: Path, image: Path, tmp_path: Path, form: str
) -> None:
    output = tmp_path / "out.npz"
    given = form.format(image)
    done = run("run", model, "--input", given, "--tune", "model", "--output", output)
    assert done.status == 0
    assert f"saved to {output}" in done.out
    with np.load(output, allow_pickle=False) as archive:
        assert list(archive) == ["y"]
        np.testing.assert_array_equal(
            archive["y"], sw.compile(model, tune="model")(np.load(image)), strict=True
        )


def test_run_takes_files_of_the_other_byte_order(run: Run, model: Path, image: Path) -> None:
    options = ("--tune", "model", "--json")
    found = run("run", model, "--input", image, *options).json
    np.save(image, np.load(image).astype(">f4"))
    assert run("run", model, "--input", image, *options).json == found


def test_run_as_json_summarizes_the_outputs(run: Run, model: Path, image: Path) -> None:
    found = run("run", model, "--input", image, "--tune", "model", "--json").json
    y = sw.compile(model, tune="model")(np.load(image))
    (row,) = found["outputs"]
    assert row == {
        "name": "y",
        "shape": [1, 8, 8, 8],
        "dtype": "float32",
        "min": float(y.min()),
        "max": float(y.max()),
        "mean": float(y.mean()),
        "argmax": int(y.argmax()),
    }


def test_run_takes_shapes(run: Run, model: Path) -> None:
    done = run("run", model, "--random", "--tune", "model", "--shape", "x=2,3,5,7", "--json")
    assert done.json["outputs"][0]["shape"] == [2, 8, 5, 7]


def test_run_with_profile_prints_every_step(run: Run, model: Path) -> None:
    done = run("run", model, "--random", "--tune", "model", "--profile")
    assert done.status == 0
    assert re.search(r"conv\w+ \[", done.out)  # of the library, or of Stridewise
    assert "in total" in done.out
    assert "medians of 20 runs" in done.out


# --- bench ----------------------------------------------------------------------------------------


def test_bench_as_json_has_every_sample(run: Run, model: Path) -> None:
    pytest.importorskip("onnxruntime")
    done = run(
        "bench", model, "--vs", "onnxruntime", "--runs", 2, "--tune", "model", "--threads", 1,
        "--json",
    )  # fmt: skip
    assert (done.status, done.err) == (0, "")
    assert done.json["machine"]["threads"] == 1
    ours, theirs = done.json["timings"]
    assert (ours["name"], theirs["name"]) == ("stridewise", "onnxruntime")
    assert ours["version"] == sw.__version__
    assert len(ours["samples_ms"]) == len(theirs["samples_ms"]) == 2
    assert ours["error"] == 0
    assert theirs["error"] < 1e-5


@pytest.mark.parametrize("streams", [1, 2])
def test_bench_with_several_requests_at_once(run: Run, model: Path, streams: int) -> None:
    pytest.importorskip("onnxruntime")
    command = ["bench", model, "--vs", "onnxruntime", "--runs", 2, "--tune", "model"]
    done = run(*command, "--threads", 2, "--streams", streams, "--json")
    assert (done.status, done.err) == (0, "")
    assert done.json["streams"] == streams
    assert done.json["machine"]["threads"] == 2 // streams
    assert [len(timing["samples_ms"]) for timing in done.json["timings"]] == [2, 2]
    assert done.json["timings"][1]["error"] < 1e-5
    done = run(*command, "--threads", 2, "--streams", streams)
    assert ("2 streams of this many threads" in done.out) is (streams == 2)


def test_streams_that_cannot_be(run: Run, model: Path) -> None:
    more = ("--threads", 2, "--tune", "model", "--streams")
    fails(run("bench", model, *more, 3), "streams: expected at most 2, one for each thread")
    assert run("run", model, "--random", *more, 2).status == 0
    simulated = run("run", model, "--random", *more, 2, "--target", "ascend")
    fails(simulated, "streams: expected 1, as target ascend is simulated, found 2")


def test_bench_prints_medians_and_ratios(run: Run, model: Path) -> None:
    pytest.importorskip("onnxruntime")
    done = run("bench", model, "--vs", "onnxruntime", "--runs", 2, "--tune", "model")
    assert done.status == 0
    assert done.out.startswith("net.onnx, x (1, 3, 8, 8), ")
    for word in ("median ms", "/ Stridewise", "difference", "stridewise", "onnxruntime"):
        assert word in done.out


def test_bench_changes_batch_and_weights_of_all_runtimes(run: Run) -> None:
    pytest.importorskip("onnxruntime")
    done = run(
        "bench", light_models()["squeezenet"], "--batch", 2, "--random-weights", "--threads", 1,
        "--vs", "onnxruntime", "--runs", 1, "--tune", "model", "--json",
    )  # fmt: skip
    assert done.status == 0
    _, theirs = done.json["timings"]
    # Equal random weights and the same batch for both: nothing else would agree.
    assert theirs["error"] < 1e-4


def test_bench_says_what_another_runtime_refuses(run: Run, model: Path) -> None:
    pytest.importorskip("onnxruntime")
    done = run(
        "bench", model, "--batch", 2, "--shape", "x=1,3,8,8", "--vs", "onnxruntime",
        "--tune", "model",
    )  # fmt: skip
    fails(done, "ONNX Runtime on x (1, 3, 8, 8): expected a run, found")


@pytest.mark.parametrize("name", ["tvm", "openvino"])
def test_bench_says_where_other_peers_are(run: Run, model: Path, name: str) -> None:
    done = run("bench", model, "--vs", name, "--tune", "model")
    fails(done, "--vs", "onnxruntime", repr(name), "python -m benchmarks.peers")


def test_bench_says_how_to_install_a_peer(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_runtime, "is_installed", lambda: False)
    done = run("bench", model, "--vs", "onnxruntime", "--tune", "model")
    fails(done, "pip install 'stridewise[fallback]'")


# --- processes, pipes and terminals ---------------------------------------------------------------


def test_a_failure_has_no_traceback_unless_it_is_asked_for(tmp_path: Path) -> None:
    missing = tmp_path / "no.onnx"
    quiet, loud = start("run", missing), start("--debug", "run", missing)
    assert (quiet.returncode, loud.returncode) == (1, 1)
    assert "Traceback" not in quiet.stderr
    assert quiet.stderr.count("\n") == 1
    assert "Traceback (most recent call last)" in loud.stderr
    assert "ModelError" in loud.stderr


def test_no_progress_bar_in_a_pipe(model: Path, tmp_path: Path) -> None:
    done = start("plan", model, "--tune", "measure", "--cache-dir", tmp_path / "costs")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "measured" in done.stdout
    assert "measuring kernels" not in done.stdout
    assert "\x1b" not in done.stdout
    again = start("plan", model, "--tune", "measure", "--cache-dir", tmp_path / "costs")
    assert "cached" in again.stdout
    assert "measured" not in again.stdout


def test_a_progress_bar_on_a_terminal(tmp_path: Path) -> None:
    path = saved(tmp_path, make(node("Relu", "x")))
    ours, theirs = os.openpty()
    try:
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
        done = start("plan", path, "--tune", "measure", stderr=theirs, env=environment)
        shown = os.read(ours, 1 << 16).decode(errors="replace")
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0
    assert "measuring kernels" in shown


def test_calibration_prints_its_rates(run: Run, tmp_path: Path) -> None:
    options = ("--seconds", 0.5, "--threads", 1, "--cache-dir", tmp_path / "costs")
    found = run("calibrate", *options, "--json").json
    assert found["measured"] == sum(rate["samples"] for rate in found["rates"]) > 0
    assert "kernels in" in run("calibrate", *options).out
    assert run("calibrate", "--seconds", 0).status == 2


def test_help_and_version(run: Run) -> None:
    assert run("--version").out == f"stridewise, version {sw.__version__}\n"
    done = run("-h")
    assert done.status == 0
    for command in ("run", "plan", "bench", "calibrate", "info"):
        assert f"\n  {command} " in done.out
        assert run(command, "-h").status == 0


def test_the_list_of_commands_has_their_own_help() -> None:
    commands: Mapping[str, click.Command] = cli.commands
    with click.Context(cli, terminal_width=100, max_content_width=100) as context:
        lines = cli.get_help(context).partition("Commands:\n")[2].splitlines()
    listed = dict(line.split(maxsplit=1) for line in lines)
    assert listed == {name: commands[name].get_short_help_str(100) for name in commands}


def test_the_list_of_commands_imports_none() -> None:
    code = (
        "import sys; from stridewise.cli.main import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "print([name for name in ('numpy', 'rich', 'stridewise.options') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Commands:" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
