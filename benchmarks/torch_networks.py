"""Networks of torchvision and timm through the backend of ``torch.compile``, against PyTorch.

    python benchmarks/torch_networks.py --out build/networks.jsonl resnet18 timm:resnet50d ...

Each network runs in a process of its own, with random weights: NCHW in batches of 1, 4 and 2,
which PyTorch captures once with fixed and once with open shapes, then channels-last. The script
adds a line of JSON for each network to a file, of which ``--table`` makes a page. Errors are
relative to the greatest result of PyTorch; the share outside is the part of the time that its
operators take. Needs torch, torchvision and timm.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import stridewise.torch as st

SEED = 0
TOLERANCE = 1e-4
BATCHES = {torch.contiguous_format: (1, 4, 2), torch.channels_last: (4,)}
PLAIN = (
    "alexnet", "convnext_tiny", "convnext_small", "densenet121", "densenet169", "densenet201",
    "efficientnet_b0", "efficientnet_b1", "efficientnet_b3", "efficientnet_v2_s", "googlenet",
    "inception_v3", "maxvit_t", "mnasnet0_5", "mnasnet1_0", "mobilenet_v2",
    "mobilenet_v3_large", "mobilenet_v3_small", "regnet_x_400mf", "regnet_x_1_6gf",
    "regnet_y_400mf", "regnet_y_1_6gf", "resnet18", "resnet34", "resnet50", "resnext50_32x4d",
    "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "squeezenet1_0", "squeezenet1_1", "swin_t",
    "swin_v2_t", "vgg11", "vgg11_bn", "vgg16", "vit_b_16", "wide_resnet50_2",
    "segmentation.lraspp_mobilenet_v3_large", "segmentation.fcn_resnet50",
    "segmentation.deeplabv3_mobilenet_v3_large",
)  # fmt: skip
TIMM = (
    "resnet26d", "resnetv2_50", "resnext26ts", "seresnet50", "skresnet18", "ecaresnet26t",
    "resnest14d", "res2net50_26w_4s", "res2next50", "dla34", "dpn68", "xception41",
    "xception71", "hrnet_w18_small", "cspresnet50", "cspdarknet53", "darknet53", "vovnet39a",
    "ese_vovnet19b_dw", "selecsls42b", "repvgg_a0", "regnetx_002", "regnety_002", "regnetz_b16",
    "nfnet_f0", "dm_nfnet_f0", "efficientnet_lite0", "tf_efficientnet_b0",
    "tf_efficientnetv2_s", "mixnet_s", "mobilenetv3_small_050", "mobilenetv4_conv_small",
    "fbnetc_100", "mnasnet_small", "spnasnet_100", "tinynet_a", "ghostnet_100",
    "ghostnetv2_100", "lcnet_050", "hardcorenas_a", "rexnet_100", "inception_v4",
    "inception_resnet_v2", "inception_next_tiny", "convnext_atto", "convnextv2_atto",
    "convmixer_768_32", "poolformer_s12", "poolformerv2_s12", "edgenext_xx_small",
    "mobilevit_xxs", "mobilevitv2_050", "mobileone_s0", "fastvit_t8", "efficientformer_l1",
    "efficientvit_b0", "efficientvit_m0", "repvit_m0_9", "starnet_s1", "hgnet_tiny",
    "hgnetv2_b0", "focalnet_tiny_srf", "davit_tiny", "levit_128s", "pvt_v2_b0",
    "twins_pcpvt_small", "visformer_tiny", "coat_tiny", "crossvit_tiny_240",
    "xcit_nano_12_p16_224", "deit_tiny_patch16_224", "vit_tiny_patch16_224",
    "swin_tiny_patch4_window7_224", "mixer_s32_224", "resmlp_12_224", "gmlp_ti16_224",
    "cait_xxs24_224", "beit_base_patch16_224", "gcresnet33ts", "lambda_resnet26t", "halonet26t",
    "botnet26t_256", "eva02_tiny_patch14_224", "tiny_vit_5m_224", "nextvit_small", "rdnet_tiny",
)  # fmt: skip


def build(name: str, side: int) -> tuple[Any, int]:
    """Return a network in evaluation mode and the side of its images."""
    torch.manual_seed(SEED)
    torchvision = _torchvision()
    kind, _, short = name.rpartition(":")
    if kind == "timm":
        timm = import_module("timm")
        model = timm.create_model(short, pretrained=False).eval()
        fixed = bool(model.default_cfg.get("fixed_input_size"))
        least = {"inception": 96, "halonet26t": 256}.get(short.partition("_")[0], side)
        side = max(side, least)
        side = int(model.default_cfg["input_size"][1]) if fixed else side
    else:
        owner = torchvision.models
        for part in short.split(".")[:-1]:
            owner = getattr(owner, part)
        more = {"weights_backbone": None} if "." in short else {}
        model = getattr(owner, short.split(".")[-1])(weights=None, **more).eval()
        fixed = short.startswith(("vit", "swin", "maxvit"))
        side = 224 if fixed else max(side, 96 if short.startswith("inception") else side)
    with torch.no_grad():
        for value in (*model.parameters(), *model.buffers()):
            if value.is_floating_point() and value.numel() > 1 and not value.abs().max() > 1e-3:
                value.normal_(0, 0.1)  # layers that begin as the identity would hide errors
            elif value.is_floating_point() and bool((value == 1).all()):
                value.uniform_(0.8, 1.2)
    return model, side


def torchvision_models() -> Any:
    """Return the models of torchvision."""
    return _torchvision().models


def _torchvision() -> Any:
    """Return torchvision, also where its own operators do not load."""
    register = torch.library.register_fake
    try:
        return import_module("torchvision")
    except RuntimeError:
        torch.library.register_fake = lambda *_args, **_options: lambda function: function
        return import_module("torchvision")
    finally:
        torch.library.register_fake = register


def tensors(result: Any) -> list[Any]:
    """Return the tensors of a result, whatever holds them."""
    return [x for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]


def difference(wanted: list[Any], found: list[Any]) -> float:
    """Return the greatest difference relative to the greatest wanted result."""
    return max(
        float((a.double() - b.double()).abs().max() / a.double().abs().max().clamp_min(1e-30))
        for a, b in zip(wanted, found, strict=True)
    )


def is_right(row: dict[str, Any]) -> bool:
    """Return whether errors are within the tolerance, or explained by the network's condition.

    Where PyTorch's own float32 results are that far from those in float64, no others are nearer.
    """
    if "failure" in row:
        return False
    conditions = row.get("conditions", {})
    return all(
        error <= max(TOLERANCE, 10 * conditions.get(key, 0.0))
        for key, error in row["errors"].items()
    )


def measured(name: str, side: int, quick: bool) -> dict[str, Any]:
    """Run one network and return its row."""
    model, side = build(name, side)
    row: dict[str, Any] = {"name": name, "side": side, "errors": {}, "warnings": []}
    with torch.inference_mode(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", st.FallbackWarning)
        for layout, batches in BATCHES.items():
            torch._dynamo.reset()
            compiled = torch.compile(model, backend="stridewise")
            for batch in batches[:1] if quick else batches:
                x = torch.randn(batch, 3, side, side).contiguous(memory_format=layout)
                wanted = tensors(model(x))
                start = time.perf_counter()
                found = tensors(compiled(x))
                row.setdefault("first", round(time.perf_counter() - start, 2))
                compiled(x)
                key = f"{layout}".removeprefix("torch.") + f" {batch}"
                row["errors"][key] = difference(wanted, found)
                if row["errors"][key] > TOLERANCE:
                    exact = tensors(copy.deepcopy(model).double()(x.double()))
                    row.setdefault("conditions", {})[key] = difference(exact, wanted)
                same = all(a.stride() == b.stride() for a, b in zip(wanted, found, strict=True))
                row.setdefault("strides", True)
                row["strides"] &= same
    report = st.report()
    row |= {"native": report.native, "outside": report.outside, "share": report.share}
    row["warnings"] = sorted({str(item.message).split(": ", 1)[1] for item in caught
                              if issubclass(item.category, st.FallbackWarning)})  # fmt: skip
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table in Markdown, with a summary."""
    right = sum(map(is_right, rows))
    within = [row for row in rows if "failure" not in row and row["share"] < 0.01]
    lines = [
        f"{right} of {len(rows)} networks are right; in {len(within)}, less than 1 % of the time "
        "runs in PyTorch.",
        "",
        "| network | side | runs | greatest error | operators | outside | time outside |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if "failure" in row:
            lines.append(f"| {row['name']} | | | {row['failure']} | | | |")
            continue
        worst = max(row["errors"], key=lambda key: row["errors"][key])
        error, total = f"{row['errors'][worst]:.1e}", row["native"] + row["outside"]
        if worst in row.get("conditions", {}):
            error += f"; PyTorch itself {row['conditions'][worst]:.1e} from float64"
        lines.append(
            f"| {row['name']} | {row['side']} | {len(row['errors'])} | {error} | {total} "
            f"| {row['outside']} | {row['share']:.1%} |"
        )
    return "\n".join(lines)


def apart(name: str, side: int, quick: bool, seconds: int) -> dict[str, Any]:
    """Run one network in a process of its own and return its row, or why there is none.

    The process is a fork, so that libraries are loaded once.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def run() -> None:
        try:
            there.send(measured(name, side, quick))
        except Exception as error:
            there.send({"name": name, "failure": f"{type(error).__name__}: {error}"[:300]})

    process = context.Process(target=run)
    process.start()
    there.close()
    failure = f"more than {seconds} s"
    try:
        if here.poll(seconds):
            return here.recv()
    except EOFError:
        failure = "the process ended"
    finally:
        process.kill()
        process.join()
    return {"name": name, "failure": failure}


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, the last one of each network."""
    return list({row["name"]: row for row in map(json.loads, path.open())}.values())


_PAGE = """\
# Networks through the backend of torch.compile

<!-- Made by benchmarks/torch_networks.py --table; the rows are in benchmarks/results. -->

Networks of torchvision and timm with random weights, compared with PyTorch's eager results. *runs*
is the number of compared batches: 4 are NCHW in batches of 1, 4 and 2 and channels-last in a batch
of 4; 2 are NCHW in a batch of 1 and channels-last in a batch of 4. Errors are relative to the
greatest result. A network is right if its errors are at most 1e-4, or at most ten times as large as
those of PyTorch's float32 results against float64. *outside* are operators that PyTorch computes.

{table}
"""


def main() -> None:
    """Run the networks of the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*PLAIN, *(f"timm:{n}" for n in TIMM)])
    parser.add_argument("--side", type=int, default=64, help="of images, where the network allows")
    parser.add_argument("--quick", action="store_true", help="one batch for each layout")
    parser.add_argument("--out", type=Path, default=Path("build/networks.jsonl"))
    parser.add_argument("--table", type=Path, help="also write the table of all rows in --out")
    parser.add_argument("--resume", action="store_true", help="leave out networks that --out has")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for a network")
    given = parser.parse_args()
    _torchvision()
    if any(name.startswith("timm:") for name in given.names):
        import_module("timm")
    rows: list[dict[str, Any]] = []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    if given.resume and given.out.exists():
        rows = [row for row in read(given.out) if row["name"] in given.names]
    done = {row["name"] for row in rows}
    for name in given.names:
        if name in done:
            continue
        rows.append(apart(name, given.side, given.quick, given.timeout))
        with given.out.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    if given.table is not None:
        given.table.write_text(_PAGE.format(table=table(read(given.out))))
    print(table(rows))


if __name__ == "__main__":
    main()
