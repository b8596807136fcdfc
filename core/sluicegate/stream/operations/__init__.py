"""What can be done to a gated stream."""
