"""A signed call to AWS, from the request to an answer that was understood or an error of ours.

Read `signed_calls` first: one call, its attempts and what is mended between them. `retry` says what is repeated and
when, `signature` signs, and `answers` reads what came back, an error or an oddity too.
"""
