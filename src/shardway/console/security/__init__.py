"""The gate before all pages: ``gate`` decides on each request.

``requests`` is a request as the gate reads it, ``answers`` what every answer carries, ``sessions`` keeps browsers
signed in, ``visitors`` says what a user may do, and ``protocol`` has the types of ASGI.
"""
