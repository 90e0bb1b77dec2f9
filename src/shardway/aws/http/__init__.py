"""A small HTTP client on asyncio does what signed calls need, with little work per call.

It speaks HTTP/1.1: measured on the way here, a tiny call costs a general client three times the CPU, and large answers
are copied twice more on their way through it. HTTP/2, for many requests over one connection, is optional (`http2`):
with its frames in pure Python a call costs three to five times as much as over our HTTP/1.1.

Read `exchange` first: one request and its answer, whatever carries them. `http1` and `http2` are the two protocols,
each with its connections and their pool, and `dialing` opens connections for both.
"""
