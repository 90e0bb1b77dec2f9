"""Subscribers of events: what they make of `penstock.events` for people and for other systems."""
