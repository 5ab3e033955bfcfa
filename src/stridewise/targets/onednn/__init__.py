"""The target ``onednn-cpu``: one file for each family of operators, listed in ``table.py``."""
