"""The sinks of a job: ``formats`` names their kinds, ``delivery`` says what each promises, and ``targets`` writes, with
``table_sinks`` for tables.
"""
