"""The front end for PyTorch: functional graphs of aten operators become graphs of Stridewise.

``values`` finds types and constants, ``partition`` decides which nodes have counterparts, and
``graphs`` builds graphs of those, by handlers that ``table`` lists. ``library`` imports
PyTorch.
"""
