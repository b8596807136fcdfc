"""Producers whose records carry stamps."""
