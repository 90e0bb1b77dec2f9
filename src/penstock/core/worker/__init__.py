"""One worker among others: what it knows of itself, and what it does in a round and between rounds, without any I/O."""
