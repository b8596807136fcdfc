"""The chain: the numbered links of a stream, the only truth about it."""
