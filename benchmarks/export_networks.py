"""Export the networks of ``networks.txt`` from timm and torchvision as ONNX files.

    pip install 'torch==2.13.0' torchvision timm onnx
    python benchmarks/export_networks.py build/networks [NAME ...]

The files have seeded random weights, statistics of batch normalization other than 0 and 1, an open
batch dimension, and the input ``x``. Files that exist are kept.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

LIST = Path(__file__).parent / "networks.txt"


def build(name: str) -> tuple[Any, int]:
    """Return a network in evaluation mode, and the side of its input in pixels.

    Args:
        name: ``timm:NAME`` or ``torchvision:NAME``.
    """
    import torch  # noqa: PLC0415 (only where networks are exported)

    torch.manual_seed(0)
    library, _, network = name.partition(":")
    if library == "timm":
        import timm  # noqa: PLC0415

        model: Any = timm.create_model(network, pretrained=False, exportable=True)
        side = int(model.default_cfg["input_size"][1])
    else:
        import torchvision  # noqa: PLC0415

        model = getattr(torchvision.models, network)(weights=None)
        side = 299 if network == "inception_v3" else 224
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d) and module.running_mean is not None:
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    return model.eval(), side


def export(name: str, path: Path) -> None:
    """Write one network; an interrupted export leaves no file."""
    import torch  # noqa: PLC0415

    model, side = build(name)
    part = path.with_suffix(".part")
    axes = {"x": {0: "N"}, "y": {0: "N"}}
    names: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": axes}
    image = torch.randn(1, 3, side, side)
    torch.onnx.export(model, (image,), str(part), dynamo=False, opset_version=17, **names)
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
