"""The machine: its CPUs, caches, memory and thread limits."""
