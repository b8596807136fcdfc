"""Checkpoints of Spark Structured Streaming that other applications write."""
