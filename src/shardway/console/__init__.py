"""``shardway console``: the read model in a browser. It shows `shardway.inspect`; it writes where it may.

It is an ASGI application (`asgi.py`) behind one gate (`security.py`), which decides on each request before any page
sees it. Pages are made on the server; a small module of JavaScript refreshes them.
"""
