"""Other runtimes, to compare with; each is imported only when it is asked for.

``python -m benchmarks.peers MODEL --vs onnxruntime,openvino`` times a model in them, as
``stridewise bench`` does with ONNX Runtime alone.
"""

from .runtimes import PEERS, USUAL, openvino_config

__all__ = ["PEERS", "USUAL", "openvino_config"]
