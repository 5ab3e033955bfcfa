"""Derivation: the meaning of the axes of every tensor, or the reason why it is unknown."""
