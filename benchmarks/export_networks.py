"""Export the networks of ``networks.txt`` from timm and torchvision as ONNX files.

    pip install 'torch==2.13.0' torchvision timm onnx
    python benchmarks/export_networks.py build/networks [NAME ...]

The files have seeded random weights, statistics of batch normalization other than 0 and 1, an open
batch dimension, and the input ``x``: an image, or a clip of 16 frames for ``torchvision:video.*``.
Files that exist are kept.
"""

from __future__ import annotations

import sys
import warnings
from operator import attrgetter
from pathlib import Path
from typing import Any

LIST = Path(__file__).parent / "networks.txt"


def build(name: str) -> tuple[Any, tuple[int, ...]]:
    """Return a network in evaluation mode, and the extents of its input without batch and channels.

    Args:
        name: ``timm:NAME`` or ``torchvision:NAME``.
    """
    import torch  # noqa: PLC0415 (only where networks are exported)

    torch.manual_seed(0)
    library, _, network = name.partition(":")
    if library == "timm":
        import timm  # noqa: PLC0415

        model: Any = timm.create_model(network, pretrained=False, exportable=True)
        extents = (int(model.default_cfg["input_size"][1]),) * 2
    else:
        import torchvision  # noqa: PLC0415

        model = attrgetter(network)(torchvision.models)(weights=None)
        extents = (299, 299) if network == "inception_v3" else (224, 224)
        if network.startswith("video."):
            extents = (16, 224, 224) if network == "video.s3d" else (16, 112, 112)
    norms = torch.nn.BatchNorm2d, torch.nn.BatchNorm3d
    for module in model.modules():
        if isinstance(module, norms) and module.running_mean is not None:
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    return model.eval(), extents


def export(name: str, path: Path) -> None:
    """Write one network; an interrupted export leaves no file."""
    import torch  # noqa: PLC0415

    model, extents = build(name)
    part = path.with_suffix(".part")
    axes = {"x": {0: "N"}, "y": {0: "N"}}
    names: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": axes}
    torch.onnx.export(
        model, (torch.randn(1, 3, *extents),), str(part), dynamo=False, opset_version=17, **names
    )
    part.replace(path)


def main() -> None:
    """Export what is missing."""
    warnings.filterwarnings("ignore")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or LIST.read_text().split():
        path = folder / f"{name.rpartition(':')[2]}.onnx"
        if not path.exists():
            export(name, path)
            print(path, flush=True)


if __name__ == "__main__":
    main()
