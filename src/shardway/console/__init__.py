"""``shardway console``: the read model in a browser. It shows `shardway.inspect`; it writes where it may.

It is an ASGI application (`asgi`) behind one gate (`security`), which decides on each request before any page
sees it. Pages are made on the server; a small module of JavaScript refreshes them.

Read `asgi` first, then `console`, which has the parts that pages share, `page`, which fills templates, and `pages`.
`looks` has what is looked at while a page is open, and `live` tells the page. `server` runs it all on one address.
"""
