"""The public functions.

``models`` reads and writes model files, ``plans`` plans, compiles and checks, ``modules`` has
models that are called like PyTorch modules, ``verify`` compares the tensors of a compiled model
with a reference, ``calibration`` measures the machine. The others wrap the flow of
``compiler.py``: ``stored`` for the compiled-model store, ``batches`` for batches in parts,
``dynamic`` for many shapes, ``restored`` for plans that were made before.
"""
