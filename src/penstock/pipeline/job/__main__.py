"""Run a job file: ``python -m penstock.pipeline.job job.toml``."""

import sys

from penstock.pipeline.job.running import main

sys.exit(main())
