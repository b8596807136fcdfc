"""Shards: slices of the key space."""
