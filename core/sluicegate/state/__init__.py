"""The state of a stream: partials per shard, how they merge, and where epochs put them."""
