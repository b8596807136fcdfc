"""The embedded log: segments of JSON lines, in partitions."""
