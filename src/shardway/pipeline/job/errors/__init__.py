"""The errors of a run: ``exit_codes`` has what they end the process with, ``causes`` takes an error of Spark apart,
``failures`` finds out whose it is, and ``error_text`` says what it was without a value of the data.
"""
