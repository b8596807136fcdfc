"""The `sluicegate` command (also `sg`): parses, asks, prints. The product is in `sluicegate`."""
