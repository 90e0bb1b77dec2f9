"""The errors of a run: ``exit_codes`` has what they end the process with, ``failures`` finds out whose an error is, and
``error_text`` says what it was without a value of the data.
"""
