"""Known convolutional networks with their published shapes and random weights from a seed.

Each function returns a :class:`~stridewise.Graph`. All take the batch, the data format, a seed for
the weights, and by name the ``size`` of the square images.

>>> import stridewise as sw
>>> graph = sw.zoo.build("squeezenet1_1", batch=2, size=64)
>>> graph.value(graph.inputs[0]).shape, graph.value(graph.outputs[0]).shape
((2, 3, 64, 64), (2, 1000))
>>> graph = sw.zoo.build("squeezenet1_1", data_format="NHWC", size=64)
>>> graph.value(graph.inputs[0]).shape
(1, 64, 64, 3)
"""

from __future__ import annotations

from collections.abc import Callable

from stridewise.errors import InputError
from stridewise.graph import Graph
from stridewise.zoo.classic import alexnet, vgg16
from stridewise.zoo.convnext import convnext_tiny
from stridewise.zoo.densenet import densenet121
from stridewise.zoo.detection import resnet50_fpn
from stridewise.zoo.efficientnet import efficientnet_b0
from stridewise.zoo.inception import inception_v3
from stridewise.zoo.mobilenet import mobilenet_v2, mobilenet_v3_large
from stridewise.zoo.regnet import regnet_y_400mf
from stridewise.zoo.resnet import resnet3d_18, resnet18, resnet50, resnext101_32x8d
from stridewise.zoo.segmentation import deeplabv3_resnet50, fcn_resnet50
from stridewise.zoo.shufflenet import shufflenet_v2
from stridewise.zoo.squeezenet import squeezenet1_1
from stridewise.zoo.unet import unet

__all__ = [
    "alexnet",
    "build",
    "convnext_tiny",
    "deeplabv3_resnet50",
    "densenet121",
    "efficientnet_b0",
    "fcn_resnet50",
    "inception_v3",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "models",
    "regnet_y_400mf",
    "resnet3d_18",
    "resnet18",
    "resnet50",
    "resnet50_fpn",
    "resnext101_32x8d",
    "shufflenet_v2",
    "squeezenet1_1",
    "unet",
    "vgg16",
]

_MODELS: dict[str, Callable[..., Graph]] = {
    function.__name__: function
    for function in (
        alexnet, convnext_tiny, deeplabv3_resnet50, densenet121, efficientnet_b0, fcn_resnet50,
        inception_v3, mobilenet_v2, mobilenet_v3_large, regnet_y_400mf, resnet18, resnet3d_18,
        resnet50, resnet50_fpn, resnext101_32x8d, shufflenet_v2, squeezenet1_1, unet, vgg16,
    )
}  # fmt: skip


def models() -> tuple[str, ...]:
    """Return the names of all models."""
    return tuple(_MODELS)


def build(
    name: str, batch: int = 1, data_format: str = "NCHW", seed: int = 0, **sizes: int
) -> Graph:
    """Return a model by its name.

    Args:
        name: one of :func:`models`.
        batch: how many images at a time.
        data_format: the order of the axes of images, ``"NCHW"`` or ``"NHWC"``. Weights and results
            are the same in each.
        seed: of the weights.
        sizes: ``size``, pixels a side, and other sizes of the model's function.

    Raises:
        InputError: there is no such model, or it has no such size.
        FormatError: there is no such data format.
        GraphError: the image is too small for the model.
    """
    function = _MODELS.get(name)
    if function is None:
        raise InputError.at("zoo", expected=f"one of {', '.join(_MODELS)}", found=repr(name))
    return function(batch, data_format, seed, **sizes)
