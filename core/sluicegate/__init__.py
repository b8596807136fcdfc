"""Sluicegate: operations toolkit for exactly-once streams on Apache Spark."""

__version__ = "0.1.0"
