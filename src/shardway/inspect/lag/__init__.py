"""The lag of an application: ``reports`` has the values, ``looks`` looks at shards, and ``verdicts`` judges what was
seen.
"""
