"""The state of a stream: deltas per shard, how they merge, and where epochs store them."""
