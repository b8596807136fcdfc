"""Gated streams: positions, dedup log, state, assignment and output in one chain."""
