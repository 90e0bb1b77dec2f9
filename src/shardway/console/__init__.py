"""``shardway console``: the read model in a browser. It shows `shardway.inspect`; it writes where it may.

It is an ASGI application (`asgi`) behind one gate (`security`), which decides on each request before any page
sees it. Pages are made on the server; a small module of JavaScript refreshes them.

Read `asgi` first, then `console`, which has the parts that pages share, `page`, which fills templates, and `pages`.
`looks` has what is looked at while a page is open, and `live` tells the page. `server` runs it all on one address,
with `settings`, which are checked as a whole; `places` says which clients have a place, and how long a request may
take to come, because uvicorn knows a deadline for neither a head nor a form. `location` names what is looked at.

`payloads` decides what is shown of a record, `decoding_threads` decode it beside the event loop, `columns` reads fields
of its JSON, and `json_colours` marks that. `charts` and `drawing` draw figures and shards as SVG. All that the console
writes goes through `writing`, by `plans` that a visitor has seen, and into the log of `audit`. `local_control` has the
controls of a local Kinesis.
"""
