"""The operations on a Spark checkpoint, one in each module."""
