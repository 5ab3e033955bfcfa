"""Post-training quantization: a float32 model and samples give a QDQ model in int8.

The float graph is folded (``quantize``), run on samples (``observe``) that are counted
(``tensor/statistics.py``), tensors are selected (``selection``) and get scales
(``tensor/ranges.py``, ``scheme``), and the graph is built again (``rebuild``), once with integers
and once as a simulation whose errors decide on methods (``equalize``) and on layers that stay in
float (``budget``).
"""

from stridewise.quantization.quantize import quantize
from stridewise.quantization.report import LayerReport, Quantized

__all__ = ["LayerReport", "Quantized", "quantize"]
