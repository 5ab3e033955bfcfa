"""Derivation: the meaning of every axis of every tensor, and what prevents it."""
