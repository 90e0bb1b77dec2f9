"""Run a job file under ``spark-submit``, which is given this file and the job file behind it."""

import sys

# Python looks for modules beside the program first: that is inside of a package here, whose modules are not to be found
# by their last names alone.
sys.path[:] = [place for place in sys.path if place != __file__.rpartition("/")[0]]

from shardway.pipeline.job.run.program import main  # noqa: E402

sys.exit(main())
