"""Simulations run whole consumers in virtual time. The names for users are in `shardway.testing`."""
