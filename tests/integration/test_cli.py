"""The command line: what it prints, what it writes, and what it says when something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto

import stridewise as sw
from stridewise.cli import main as entry
from stridewise.frontends.onnx.fallback import runtime as onnx_runtime

from .models import light_models
from .onnx_nodes import make, node

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32


# --- running --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all tests, and the processes that they start, away from the user's cost cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call the entry point in this process, which takes a tenth of the time of a new one."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["stridewise", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            entry.main()
        printed = capsys.readouterr()
        return Done(int(stop.value.code or 0), printed.out, printed.err)

    return call


def start(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process of its own."""
    command = [sys.executable, "-m", "stridewise.cli.main", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(command, text=True, check=False, timeout=120, **pipes)


def fails(done: Done, *parts: str) -> None:
    """Check for status 1, one line on standard error that has all of these parts, nothing else."""
    assert done.status == 1
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert done.err.endswith("\n")
    for part in parts:
        assert part in done.err


# --- models ---------------------------------------------------------------------------------------


def small_net() -> ModelProto:
    """A convolution and its activation; three input channels, eight output channels."""
    weights = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(F32)
    return make(
        node("Conv", "x", "w", outputs=["a"], pads=[1, 1, 1, 1], name="conv1"),
        node("Relu", "a", name="relu1"),
        constants={"w": weights},
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(small_net(), path)
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.npy"
    np.save(path, np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(F32))
    return path


def saved(folder: Path, proto: ModelProto, name: str = "other.onnx") -> Path:
    onnx.save(proto, folder / name)
    return folder / name


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


# --- plan -----------------------------------------------------------------------------------------


def test_plan_prints_kernels_reorders_and_the_proof(run: Run, model: Path) -> None:
    done = run("plan", model, "--tune", "model", "--threads", 1)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("plan of 'test' for onednn-cpu (")
    assert "conv+relu" in done.out
    assert "conv1" in done.out
    assert "reorders left:" in done.out
    assert "proved optimal for these candidates and costs" in done.out
    for kind in ("plain", "channels-last", "blocked"):
        assert f"all {kind}" in done.out
    assert "what every tensor means" not in done.out
    assert "what was not done" not in done.out


def test_plan_as_json_is_the_plan_of_the_api(run: Run, model: Path) -> None:
    found = run("plan", model, "--tune", "model", "--threads", 1, "--json").json
    assert found == json.loads(sw.plan(model, tune="model", threads=1).to_json())
    assert found["version"] == 2
    assert [step["name"] for step in found["nodes"]] == ["conv1"]
    assert found["nodes"][0]["post_ops"] == ["relu"]
    assert found["lower_bound_ns"] <= found["cost_ns"]


def test_origins_of_inputs_can_be_declared(run: Run, tmp_path: Path) -> None:
    path = saved(tmp_path, make(node("Relu", "x", name="relu1"), shape=(1, 6, 5, 20)))
    wanted = ("--tune", "model", "--threads", 1, "--input-origin", "x=NHWC")
    done = run("plan", path, *wanted, "--origins")
    assert "  y: NHWC declared for x through relu1\n" in done.out
    for target in ("onednn-cpu", "ascend"):
        done = run("run", path, *wanted, "--random", "--target", target)
        assert (done.status, done.err) == (0, "")
    page = tmp_path / "page.html"
    assert run("report", path, *wanted, "--no-run", "-o", page).status == 0
    assert "NHWC" in page.read_text()
    fails(run("plan", path, "--input-origin", "x"), "--input-origin: expected NAME=VALUE")
    fails(run("run", path, "--random", "--input-origin", "z=NHWC"), "origins: expected inputs, 'x'")
    fails(run("plan", path, "--input-origin", "x=NCW"), "the declared origin of input 'x'")


def test_plan_prints_origins_and_refusals_on_demand(run: Run, tmp_path: Path) -> None:
    proto = make(
        node("Conv", "x", "w", outputs=["a"], name="conv1"),
        node("Relu", "a", outputs=["y"], name="relu1"),
        node("Flatten", "a", outputs=["z"], name="flat"),
        constants={"w": np.ones((4, 3, 1, 1), F32)},
        outputs=("y", "z"),
    )
    path = saved(tmp_path, proto)
    done = run("plan", path, "--tune", "model", "--origins", "--refusals")
    assert done.status == 0
    origins, refusals = done.out.split("what was not done:\n")
    assert "  x: NCHW from conv1\n" in origins
    assert "  y: NCHW from conv1 through relu1\n" in origins
    assert "  z: ND: reshape 'flat' interrupts\n" in origins
    assert all(line.count(": ") >= 2 for line in refusals.splitlines())


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """Two convolutions, the first of them with its activation."""
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal((16, n, 3, 3)).astype(F32) for n in (3, 16))
    proto = make(
        node("Conv", "x", "w", outputs=["a"], pads=[1, 1, 1, 1], name="conv1"),
        node("Relu", "a", outputs=["b"], name="relu1"),
        node("Conv", "b", "v", outputs=["y"], pads=[1, 1, 1, 1], name="conv2"),
        constants={"w": first, "v": second},
    )
    return saved(tmp_path, proto, "chain.onnx")


MODEL = ("--tune", "model", "--threads", 1)


def follows_the_schema(document: Any) -> None:
    path = Path(__file__).parents[2] / "docs" / "plan.schema.json"
    jsonschema.validate(document, json.loads(path.read_text(encoding="utf-8")))


def test_plan_says_why(run: Run, chain: Path) -> None:
    done = run("plan", chain, *MODEL, "--why", "conv2")
    assert (done.status, done.err) == (0, "")
    plan = sw.plan(chain, tune="model", threads=1)
    assert done.out == str(plan.why("conv2"))
    found = run("plan", chain, *MODEL, "--why", "conv1", "--why", "conv2", "--json").json
    follows_the_schema(found)
    assert [why["node"] for why in found["why"]] == ["conv1", "conv2"]
    assert [item["total_delta_ns"] for item in found["why"][1]["alternatives"]] == [
        item.total_delta_ns for item in plan.why("conv2").alternatives
    ]


def test_plan_prints_every_regret(run: Run, chain: Path) -> None:
    done = run("plan", chain, *MODEL, "--regret")
    regrets = sw.plan(chain, tune="model", threads=1).regrets()
    assert done.out.splitlines() == [str(regret) for regret in regrets]
    found = run("plan", chain, *MODEL, "--regret", "--json").json
    follows_the_schema(found)
    assert [item["total_ns"] for item in found["regrets"]] == [r.total_ns for r in regrets]
    assert len({r.tensor for r in regrets}) == 2
    few = run("plan", chain, *MODEL, "--regret", "--limit", 1, "--json").json
    assert len({item["tensor"] for item in few["regrets"]}) == 1


def test_plan_with_a_wish_shows_what_it_costs(run: Run, chain: Path) -> None:
    done = run("plan", chain, *MODEL, "--what-if", "conv1=NCHW")
    assert done.status == 0
    assert "given: b in NCHW\n" in done.out
    assert "beside the plan without conv1:\n" in done.out
    plan = sw.plan(chain, tune="model", threads=1)
    assert done.out.endswith(str(plan.diff(plan.what_if({"b": "plain"}))))
    found = run("plan", chain, *MODEL, "--what-if", "conv1=nchw", "--json").json
    follows_the_schema(found)
    assert found["pins"] == {"b": "NCHW"}


def test_plans_are_saved_used_again_and_compared(run: Run, chain: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    done = run("plan", chain, *MODEL, "--save", one)
    assert done.out.endswith(f"saved to {one}\n")
    run("plan", chain, *MODEL, "--plan", one, "--what-if", "b=plain", "--save", two)
    follows_the_schema(json.loads(one.read_text(encoding="utf-8")))
    again = run("plan", chain, "--threads", 1, "--plan", one, "--json")
    assert (again.err, again.json) == ("", json.loads(one.read_text(encoding="utf-8")))
    ran = run("run", chain, "--random", "--threads", 1, "--plan", two)
    assert (ran.status, ran.err) == (0, "")
    found = run("diff", one, two)
    plan = sw.load_plan(one, chain, threads=1)
    assert found.out == str(plan.diff(sw.load_plan(two, chain, threads=1)))
    table = run("diff", one, two, "--json").json
    assert table["changes"][0]["node"] == "conv1"
    assert table["before_ns"] == plan.cost_ns
    assert run("diff", one, one).out.startswith("both plans decide the same\n")


def test_a_plan_of_other_threads_is_a_warning_of_one_line(
    run: Run, chain: Path, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    run("plan", chain, *MODEL, "--save", path)
    for command in (("plan",), ("run", "--random")):
        done = run(command[0], chain, *command[1:], "--threads", 2, "--plan", path)
        assert done.status == 0
        assert done.err == (
            f"warning: plan file {str(path)!r}: the plan was made for another machine "
            "(threads: 1, here 2); costs may not hold here\n"
        )


def test_plans_are_drawn(run: Run, chain: Path, tmp_path: Path) -> None:
    plan = sw.plan(chain, tune="model", threads=1)
    assert run("plan", chain, *MODEL, "--dot", "-").out == plan.to_dot()
    path = tmp_path / "plan.dot"
    done = run("plan", chain, *MODEL, "--dot", path)
    assert path.read_text(encoding="utf-8") == plan.to_dot()
    assert done.out.endswith(f"saved to {path}\n")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--why", "conv3"), ("expected the name of a node", "'conv3'", "did you mean 'conv2'")),
        (("--what-if", "b=foo"), ("tensor 'b'", "formats on offer", "NCHW (plain)", "'foo'")),
        (("--what-if", "c=nhwc"), ("the name of a tensor or node", "'c'")),
        (("--what-if", "b"), ("--what-if", "NAME=VALUE")),
        (("--plan", "no.json"), ("plan file 'no.json'", "no such file", "--save FILE")),
        (("--save", "no/plan.json"), ("plan file 'no/plan.json'", "a file to write")),
        (("--dot", "no/plan.dot"), ("--dot", "a file that can be written")),
    ],
)
def test_questions_that_make_no_sense(
    run: Run, chain: Path, options: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    fails(run("plan", chain, *MODEL, *options), *parts)


def test_files_that_are_no_plans_are_not_compared(run: Run, model: Path) -> None:
    fails(run("diff", model, model), f"plan file {str(model)!r}", "a plan file", "no JSON")


def test_plan_takes_a_target(run: Run, model: Path) -> None:
    fails(run("plan", model, "--target", "gpu"), "target", "onednn-cpu", "'gpu'")


def test_plan_and_run_take_simulated_targets_by_name_and_by_file(
    run: Run, model: Path, tmp_path: Path
) -> None:
    done = run("plan", model, "--target", "ascend")
    assert done.status == 0
    assert "TransData" in done.out
    assert "each operator for itself" in done.out
    expected = run("run", model, "--random", "--tune", "model", "--json").json["outputs"]
    found = run("run", model, "--random", "--target", "ascend", "--json").json["outputs"]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["mean"] == pytest.approx(theirs["mean"], rel=1e-4, abs=1e-5)
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\ndialect = "onednn"\ndtypes = ["float32"]\n'
        "rates = { bytes_per_s = 1e9, flops_per_s = 1e9 }\n"
        'family = [{ ops = ["relu"], rules = [{ data = "ND" }] }]\n'
    )
    assert run("plan", model, "--target", path, "--json").json["target"] == "mine"
    assert run("run", model, "--random", "--target", path).status == 0
    fails(run("run", model, "--random", "--profile", "--target", path), "mine", "simulated")
    path.write_text("name = 3")
    fails(run("plan", model, "--target", path), "mine.toml", "key 'name'")


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
    assert "convolution [" in done.out
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


# --- what is wrong --------------------------------------------------------------------------------

COMMANDS = (("run", "--random"), ("plan",), ("bench", "--vs", "onnxruntime", "--runs", "1"))
every_command = pytest.mark.parametrize("command", COMMANDS, ids=[c[0] for c in COMMANDS])


def on(command: tuple[str, ...], path: Path) -> tuple[object, ...]:
    return (command[0], path, *command[1:], "--tune", "model")


@every_command
def test_a_missing_file(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    fails(run(*on(command, tmp_path / "no.onnx")), "no.onnx", "an ONNX file", "no such file")


@every_command
def test_a_truncated_file(run: Run, model: Path, command: tuple[str, ...]) -> None:
    model.write_bytes(model.read_bytes()[:-200])
    fails(run(*on(command, model)), "net.onnx", "truncated or not ONNX")


@every_command
def test_a_text_file(run: Run, model: Path, command: tuple[str, ...]) -> None:
    model.write_text("[net]\nbatch=1\n", encoding="ascii")
    fails(run(*on(command, model)), "net.onnx", "found lines of text")


@every_command
def test_an_unknown_operator(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    path = saved(tmp_path, make(node("Dream", "x", name="night", domain="mine")))
    fails(run(*on(command, path)), "node 'night' (Dream)", "a supported operator")


@every_command
@pytest.mark.parametrize(
    ("op", "dtype", "name"),
    [("Relu", TensorProto.DOUBLE, "float64"), ("Identity", TensorProto.INT8, "int8")],
)
def test_another_dtype(
    run: Run, tmp_path: Path, command: tuple[str, ...], op: str, dtype: int, name: str
) -> None:
    path = saved(tmp_path, make(node(op, "x"), dtype=dtype))
    done = run(*on(command, path))
    assert done.status == 0, done.err
    if command[0] == "plan" and op == "Relu":
        assert f"input 0 is {name}, kernels take bfloat16, float16, float32\n" in done.out


@every_command
def test_inputs_that_are_no_numbers(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    path = saved(tmp_path, make(node("StringNormalizer", "x", locale="C"), shape=(3,), dtype=8))
    done = run(*on(command, path))
    if command[0] == "plan":
        assert "tail: 1 node (StringNormalizer)" in done.out
    else:
        fails(done, "inputs that are tensors of numbers, found 'x'", "from Python")


@every_command
@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ("x", ("--shape", "NAME=VALUE")),
        ("x=1,3,a b,8", ("--shape", "NAME=1,3,224,224", "x=1,3,a b,8")),
        ("x=1,3,-8,8", ("--shape", "NAME=1,3,224,224")),
        ("x=", ("--shape", "NAME=1,3,224,224")),
        ("z=1,3,8,8", ("names of inputs ('x')", "'z'")),
        ("x=1,3", ("input 'x'", "rank 4", "(1, 3)")),
        ("x=1,3,0,8", ("node 'conv1'", "f32[1,3,0,8]")),
        ("x=1,4,8,8", ("node 'conv1'", "3 input channels")),
    ],
)
def test_bad_shapes(
    run: Run, model: Path, command: tuple[str, ...], shape: str, parts: tuple[str, ...]
) -> None:
    fails(run(*on(command, model), "--shape", shape), *parts)


def test_an_open_extent_says_which_option_fixes_it(run: Run, tmp_path: Path) -> None:
    path = saved(tmp_path, make(node("Relu", "x"), shape=("N", 3, "H", "W")))
    fails(run("plan", path, "--tune", "model"), "(N, 3, H, W)", "--shape x=1,3,224,224")
    done = run("plan", path, "--tune", "model", "--shape", "x=1,3,4,4")
    assert done.status == 0


def wrong_shape(x: Array) -> Array:
    return x[:, :, :5]


def wrong_dtype(x: Array) -> Array:
    return x.astype(np.float64)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (wrong_shape, ("input 'x'", "shape (1, 3, 8, 8)", "(1, 3, 5, 8)", "compile with shapes")),
        (wrong_dtype, ("input 'x'", "float32", "float64", "astype")),
    ],
)
def test_inputs_that_do_not_fit(
    run: Run, model: Path, image: Path, change: Callable[[Array], Array], parts: tuple[str, ...]
) -> None:
    np.save(image, change(np.load(image)))
    fails(run("run", model, "--input", f"x={image}", "--tune", "model"), *parts)


def test_inputs_of_wrong_names(run: Run, model: Path, image: Path) -> None:
    options = ("--input", f"z={image}", "--tune", "model")
    fails(run("run", model, *options), "inputs x", "found z", "--input x=FILE.npy")
    fails(run("run", model, *options, "--random"), "inputs x", "found z")


def test_no_input_at_all(run: Run, model: Path) -> None:
    fails(run("run", model, "--tune", "model"), "inputs x", "--input x=FILE.npy", "--random")


@pytest.mark.parametrize(
    ("content", "found"),
    [(None, "no such file"), (b"abc", "x.npy"), (b"\x93NUMPY\x01\x00", "x.npy")],
    ids=["missing", "text", "truncated"],
)
def test_inputs_that_are_no_arrays(
    run: Run, model: Path, tmp_path: Path, content: bytes | None, found: str
) -> None:
    path = tmp_path / "x.npy"
    if content is not None:
        path.write_bytes(content)
    fails(run("run", model, "--input", f"x={path}", "--tune", "model"), "a .npy file", found)


def test_an_archive_is_no_input(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros(3))
    done = start("run", model, "--input", f"x={tmp_path / 'x.npz'}", "--tune", "model")
    wrong = Done(done.returncode, done.stdout, done.stderr)
    fails(wrong, "one array", "an archive", "numpy.save")


def test_an_output_that_cannot_be_written(run: Run, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "no" / "out.npz"
    done = run("run", model, "--random", "--tune", "model", "--output", output)
    fails(done, str(output))


@pytest.mark.parametrize(
    "arguments",
    [
        ("walk",),
        ("run",),
        ("plan", "net.onnx", "--tune", "guess"),
        ("plan", "net.onnx", "--threads", "0"),
        ("bench", "net.onnx", "--runs", "0"),
        ("info", "--fast"),
    ],
)
def test_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.status == 2
    assert done.out == ""
    assert done.err.startswith("Usage: ")
    assert "Traceback" not in done.err


def test_a_broken_archive_is_no_input(run: Run, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"PK\x03\x04junk")
    fails(run("run", model, "--input", f"x={path}", "--tune", "model"), "a .npy file")


def test_a_tensor_larger_than_the_address_space(run: Run, model: Path) -> None:
    shape = ("--shape", "x=1,3,99999999,99999999")
    fails(run("run", model, "--random", "--tune", "model", *shape), "input 'x'", "iB of memory")


def test_digits_that_are_no_decimals(run: Run, model: Path) -> None:
    done = run("plan", model, "--tune", "model", "--shape", "x=1,3,\N{SUPERSCRIPT TWO},8")
    fails(done, "--shape", "NAME=1,3,224,224")


@pytest.mark.parametrize("command", ["run", "plan", "bench", "report"])
def test_models_that_need_more_than_the_limit(run: Run, model: Path, command: str) -> None:
    arguments = ["--random"] if command == "run" else []
    done = run(command, model, "--tune", "model", *arguments, "--memory-limit", "1 KiB")
    fails(done, "expected at most 1.0 KiB of memory")


def test_a_limit_that_is_high_enough(run: Run, model: Path) -> None:
    assert run("plan", model, "--tune", "model", "--memory-limit", "2GiB").status == 0


@pytest.mark.parametrize("text", ["", "0", "0.2", "-1MB", "2 gallons", "1e9", "2GiBs"])
def test_a_limit_that_is_no_number_of_bytes(run: Run, model: Path, text: str) -> None:
    done = run("plan", model, "--memory-limit", text)
    assert done.status == 2
    assert "a number of bytes: expected one like 2GiB" in done.err


def test_a_negative_seed_is_wrong_usage(run: Run, model: Path) -> None:
    assert run("run", model, "--random", "--tune", "model", "--seed", -1).status == 2


def test_outputs_of_any_name_are_saved(run: Run, tmp_path: Path) -> None:
    names = ("file", "allow_pickle", "a/b")
    proto = make(*(node("Relu", "x", outputs=[n], name=n) for n in names), outputs=names)
    output = tmp_path / "out.npz"
    path = saved(tmp_path, proto)
    done = run("run", path, "--random", "--tune", "model", "--output", output)
    assert done.status == 0
    with np.load(output, allow_pickle=False) as archive:
        assert sorted(archive) == sorted(names)


def test_a_batch_for_a_model_whose_outputs_have_no_shape(run: Run, model: Path) -> None:
    done = run(
        "bench", model, "--batch", 2, "--vs", "onnxruntime", "--runs", 1, "--tune", "model",
        "--json",
    )  # fmt: skip
    assert done.status == 0


def test_scalars_run(run: Run, tmp_path: Path) -> None:
    path = saved(tmp_path, make(node("Relu", "x"), shape=()))
    done = run("run", path, "--random", "--tune", "model", "--json")
    assert done.status == 0
    assert done.json["outputs"][0]["shape"] == []


def test_a_profile_is_in_the_json(run: Run, model: Path) -> None:
    done = run("run", model, "--random", "--tune", "model", "--profile", "--json")
    assert done.json["profile"][0]["node"] == "conv1"


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
