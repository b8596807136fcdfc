"""Exact deduplication: which stamps were seen, as intervals of sequences per producer."""
