"""The exact solver. It works on names and numbers, independent of graphs and formats."""
