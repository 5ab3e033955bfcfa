"""Compiled models: inputs, outputs, many shapes, concurrent requests."""
