"""Handlers and exporters of ONNX operators, one file per family."""
