"""The files of a Spark checkpoint, one module for each of their formats."""
