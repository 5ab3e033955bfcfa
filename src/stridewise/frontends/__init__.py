"""Importers: one folder a model format, each with ``import_model(source, ...) -> Graph``."""
