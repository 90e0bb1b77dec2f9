"""What the console looks at: ``sampler`` looks at topics while pages are open, and ``topics`` names them.

``rates``, ``worker_rates``, ``lag_history`` and ``figures`` are what lies between looks, ``standing`` orders
applications, ``newest`` finds the newest records, and ``tailing`` gives one reading to all live tails.
"""
