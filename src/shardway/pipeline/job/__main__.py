"""Run a job file: ``python -m shardway.pipeline.job job.toml``."""

import sys

from shardway.pipeline.job.run.program import main

sys.exit(main())
