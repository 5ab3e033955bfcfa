"""Handlers of aten operators, one file per family; ``table.py`` of the front end lists them."""
