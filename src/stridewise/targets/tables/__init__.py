"""Targets that are tables: formats, rules and rates, read from TOML files and simulated."""
