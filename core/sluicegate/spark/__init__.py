"""Spark Structured Streaming checkpoints, read without Spark or Java."""
