"""What to give to ``spark-submit``: this file, and a job file behind it."""

import sys

# Python looks for modules beside the program first: here that is inside of a package, whose modules are none of them.
sys.path[:] = [place for place in sys.path if place != __file__.rpartition("/")[0]]

from penstock.pipeline.job.running import main  # noqa: E402

sys.exit(main())
