"""Streams that a test has in its hands, in memory or in a local Kinesis.

`given` makes records of what a test gives, `controls` has what a test does with a stream, and `memory_stream` and
`served_stream` are the two kinds.
"""
