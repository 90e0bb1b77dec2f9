"""One shard in one tenure: what is fetched, delivered, settled and checkpointed."""
