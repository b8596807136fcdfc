"""Changing Spark checkpoints: repair, rollback, reset, seed, relocate."""
