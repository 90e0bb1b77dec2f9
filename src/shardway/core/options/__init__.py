"""Options as programs give them: declared once, by type hints, and checked as a whole.

Read the modules in this order:

- `base`: `Options`, the class that each group of options derives from.
- `unknown`: what to write in place of a name that is not known.
- `check`: one error of all faults of values, by their hints and by rules between them.
- `hints`: what a type hint says of a value. A group's own hints are read there, and so are those of arguments.
"""
