"""HTTP/2 as a client speaks it, by h2 (``pip install 'shardway[http2]'``), which is imported with these modules.

Read `stream` first: one request and its answer. `connection` carries many of them, `liveness` says when the other side
counts as dead, and `frames` takes out what the library would get wrong. `pool` lends streams of few connections.
"""
