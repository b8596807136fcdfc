"""Starts any Spark application with its user's own spark-submit, from the right place."""
