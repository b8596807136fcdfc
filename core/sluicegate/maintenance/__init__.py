"""Maintenance without a person: verify, compact, prune and collect, for every kind of target."""
