"""Positions that are moved: ``plans`` has the values of a plan, ``planning`` makes one, with ``places`` for what a goal
means in each shard, ``skipping`` plans to pass over one record, and ``applying`` is the one place that writes.
``positions`` are an application's positions as a document, and ``documents`` reads those of other programs, too.
"""
