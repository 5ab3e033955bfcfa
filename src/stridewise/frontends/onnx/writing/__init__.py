"""Writing ONNX models."""
