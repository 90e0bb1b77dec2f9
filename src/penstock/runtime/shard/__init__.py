"""One shard in one tenure: what is fetched, handed out, settled and checkpointed."""
