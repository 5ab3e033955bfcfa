"""Write the fixtures ``torch_*.onnx``: small networks as PyTorch exports them.

Made with torch 2.13.0 (CPU), onnxscript 0.7.2 and onnx 1.23.2:

    pip install torch==2.13.0 onnxscript==0.7.2 onnx==1.23.2
    python tests/data/make_torch_models.py

Each network is exported by the exporter of today (``dynamo``) and by the older one
(``torchscript``), in evaluation mode, with seeded weights and non-trivial batch norm statistics.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

FOLDER = Path(__file__).parent
LIMIT_NBYTES = 300_000
OPSETS = {"dynamo": 18, "torchscript": 17}


class ConvNorm(nn.Sequential):
    """Convolution, batch norm and an activation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 3,
        *,
        stride: int = 1,
        groups: int = 1,
        act: type[nn.Module] | None = nn.ReLU,
    ) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        super().__init__(*layers, *([act()] if act else []))


class Bottleneck(nn.Module):
    """The residual block of ResNet-50."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            ConvNorm(inputs, width, 1),
            ConvNorm(width, width, 3, stride=stride),
            ConvNorm(width, outputs, 1, act=None),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = ConvNorm(inputs, outputs, 1, stride=stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.skip(x))


class ResNet(nn.Module):
    """A narrow ResNet with max pooling, two stages, and ``torch.flatten`` before the head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            ConvNorm(3, 12, 7, stride=2), nn.MaxPool2d(3, 2, 1, ceil_mode=False)
        )
        self.stages = nn.Sequential(
            Bottleneck(12, 6, 1), Bottleneck(24, 6, 1), Bottleneck(24, 12, 2)
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.stages(self.stem(x)))
        return self.head(torch.flatten(x, 1))


class InvertedResidual(nn.Module):
    """The block of MobileNetV2."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        width = inputs * expand
        self.residual = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            ConvNorm(inputs, width, 1, act=nn.ReLU6),
            ConvNorm(width, width, 3, stride=stride, groups=width, act=nn.ReLU6),
            ConvNorm(width, outputs, 1, act=None),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class MobileNetV2(nn.Module):
    """Inverted residuals, ``mean`` over the image, dropout before the head."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            ConvNorm(3, 8, 3, stride=2, act=nn.ReLU6),
            InvertedResidual(8, 12, 1, 3),
            InvertedResidual(12, 12, 1, 3),
            InvertedResidual(12, 20, 2, 3),
            ConvNorm(20, 40, 1, act=nn.ReLU6),
        )
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(40, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean([2, 3]))


class SqueezeExcite(nn.Module):
    """A gate for each channel, from the mean of the image."""

    def __init__(self, width: int, inner: int, act: type[nn.Module], gate: type[nn.Module]) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(width, inner, 1)
        self.expand = nn.Conv2d(inner, width, 1)
        self.act, self.gate = act(), gate()

    def forward(self, x: Tensor) -> Tensor:
        gate = functional.adaptive_avg_pool2d(x, 1)
        return x * self.gate(self.expand(self.act(self.squeeze(gate))))


class GatedResidual(nn.Module):
    """The block of MobileNetV3 and EfficientNet."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, act: type[nn.Module], gate: type[nn.Module]
    ) -> None:
        super().__init__()
        width = inputs * 3
        inner_act = nn.ReLU if gate is nn.Hardsigmoid else act
        self.residual = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            ConvNorm(inputs, width, 1, act=act),
            ConvNorm(width, width, 5, stride=stride, groups=width, act=act),
            SqueezeExcite(width, max(width // 4, 4), inner_act, gate),
            ConvNorm(width, outputs, 1, act=None),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class MobileNetV3(nn.Module):
    """Hard swish and hard sigmoid gates, and ``view`` before the head."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            ConvNorm(3, 8, 3, stride=2, act=nn.Hardswish),
            GatedResidual(8, 8, 1, nn.Hardswish, nn.Hardsigmoid),
            GatedResidual(8, 17, 2, nn.Hardswish, nn.Hardsigmoid),
            ConvNorm(17, 34, 1, act=nn.Hardswish),
        )
        self.head = nn.Sequential(nn.Linear(34, 24), nn.Hardswish(), nn.Linear(24, 10))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.adaptive_avg_pool2d(self.features(x), 1)
        return self.head(x.view(x.size(0), -1))


class EfficientNet(nn.Module):
    """SiLU, sigmoid gates, an explicit asymmetric pad before the stem, and softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, bias=False), nn.BatchNorm2d(8), nn.SiLU())
        self.features = nn.Sequential(
            GatedResidual(8, 12, 1, nn.SiLU, nn.Sigmoid),
            GatedResidual(12, 12, 1, nn.SiLU, nn.Sigmoid),
            GatedResidual(12, 20, 2, nn.SiLU, nn.Sigmoid),
            ConvNorm(20, 40, 1, act=nn.SiLU),
        )
        self.head = nn.Linear(40, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(self.stem(functional.pad(x, (0, 1, 0, 1))))
        x = functional.adaptive_avg_pool2d(x, 1).squeeze(-1).squeeze(-1)
        return functional.softmax(self.head(x), dim=1)


NETWORKS: dict[str, tuple[type[nn.Module], int]] = {
    "resnet": (ResNet, 64),
    "mobilenet_v2": (MobileNetV2, 32),
    "mobilenet_v3": (MobileNetV3, 32),
    "efficientnet": (EfficientNet, 32),
}


def build(network: type[nn.Module], seed: int) -> nn.Module:
    """Return a network in evaluation mode with seeded weights and statistics."""
    torch.manual_seed(seed)
    model = network().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.7, 1.3)
            nn.init.normal_(module.bias, std=0.2)
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model


def export(model: nn.Module, size: int, exporter: str, path: Path) -> None:
    """Write one fixture; weights that the exporter keeps in a file of their own go inside."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "model.onnx"
        torch.onnx.export(
            model,
            (torch.zeros(1, 3, size, size),),
            draft,
            input_names=["input"],
            output_names=["output"],
            opset_version=OPSETS[exporter],
            dynamo=exporter == "dynamo",
        )
        loaded = onnx.load(draft)
    for node in loaded.graph.node:
        # Where in the source a node came from is large, and names the folders of this machine.
        del node.metadata_props[:]
        node.doc_string = ""
    for value in loaded.graph.value_info:
        del value.metadata_props[:]
    del loaded.graph.metadata_props[:]
    del loaded.metadata_props[:]
    onnx.checker.check_model(loaded)
    content = loaded.SerializeToString(deterministic=True)
    if len(content) > LIMIT_NBYTES:
        raise SystemExit(f"{path.name} has {len(content)} bytes, expected at most {LIMIT_NBYTES}")
    path.write_bytes(content)
    print(f"{path.name}: {len(content)} bytes, {len(loaded.graph.node)} nodes", file=sys.stderr)


def main() -> None:
    """Write all fixtures beside this script."""
    for seed, (name, (network, size)) in enumerate(NETWORKS.items()):
        for exporter in OPSETS:
            model = build(network, seed)
            export(model, size, exporter, FOLDER / f"torch_{name}_{exporter}.onnx")


if __name__ == "__main__":
    main()
