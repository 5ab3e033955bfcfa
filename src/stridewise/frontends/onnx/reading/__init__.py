"""Reading ONNX models: files, protobuf messages, the import of a graph."""
