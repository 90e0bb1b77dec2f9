"""Hypothesis without deadlines: how fast a machine is at a given moment is no property of the code."""

from hypothesis import settings

settings.register_profile("penstock-cli", deadline=None)
settings.load_profile("penstock-cli")
