"""HTTP/1.1 as a client speaks it: `messages` on the wire, a `connection` that carries one request at a time, and a
`pool` that lends connections one by one.
"""
