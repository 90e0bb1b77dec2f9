"""What a stream and its applications cost: ``traffic`` has what is paid for, ``prices`` and ``items`` make a bill of
it, and ``reports`` compares the bills.
"""
