"""One worker among others, without any I/O: what it does in a round, and between rounds.

The worker's machine takes events and answers with actions. A round is one event, a `View`: the tables as they were read
just now. The worker decides on its part of the assignment, and goes through both sides of all handoffs. What happens
between rounds (a lease is held, a shard is drained) is an event of its own.

Read the modules in this order:

- `state`: what the worker knows of itself.
- `events`: what it learns.
- `actions`: what is to be done.
- `machine`: `step`, and the rule for each event.
- `round`: a `View`, and in which order its parts are decided.
- `upkeep`: when the leases of the streams are looked after.
- `departure`: leases are left to other workers, for a while or for good.
- `held`: the leases that the worker holds, up to their handoff; the owner's sides.
- `given`: the leases that were given to other workers, and whether these have begun with them.
- `awaited`: the leases that may come; the receiver's sides.

Users import the two namespaces, `from shardway.core.worker import actions, events`, and name their members by them.
"""
