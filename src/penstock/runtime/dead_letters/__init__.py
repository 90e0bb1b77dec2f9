"""Records that were given up: where they go, and how they come back."""
