"""The ledger of a shard says what was delivered, what became of it, and how far a checkpoint may go. It makes no I/O.

`ledger` is the whole of one tenure: pages of records go in, deliveries come out, and handlers settle them in any order.
`progress` says how far all is settled. The ledger follows a `policy`: `failures` says what becomes of records that
fail, `letters` has the dead letters that are to be written, and `stalls` what takes too long; `ledger_events` makes the
events.

Below it is the `book`, which knows no policy: `page`, `chain` and `ticket` are what it keeps, and `queues` and
`key_queue` say what is delivered next. `parts` splits records before they come in, each part with all that its record
has (`record_view`), and `collector` puts delivered ones together by a key. `letter` is a dead letter as it is written.
"""
