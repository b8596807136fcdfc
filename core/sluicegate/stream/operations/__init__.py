"""The operations on gated streams, one file each."""
