"""Spark as the judge: damaged checkpoints, what `sg` says of them, and what a real restart does.

    python -m tests.oracle --spark 4.3.0 --minutes 60

`kinds` names the queries, `bases` runs them once, `damages` enumerates what can happen to their
files, `trial` asks `sg` and Spark about one of them, `report` compares the answers. Only the
command line of the product is used.
"""
