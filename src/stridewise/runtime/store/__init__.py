"""The store of compiled models on disk."""
