"""The exact choice over names and numbers; it knows no graphs and no formats."""
