"""Nodes without a native operator: clusters and the tail that ONNX Runtime computes."""
