"""The ledger of a shard: what was handed out, what became of it, and how far a checkpoint may go."""
