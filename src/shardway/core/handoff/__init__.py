"""A lease moves from one live worker to another, by a table of states and events for each of the two sides.

Read the modules in this order:

- `owner`: the worker that has the lease offers it, stops, and gives it away in one write.
- `receiver`: the worker that is to have the lease asks for it, reads ahead, and delivers once the lease's row names it.

What is not in a table changes nothing.
"""
