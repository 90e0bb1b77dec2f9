"""``python -m penstock.pipeline.job job.toml``."""

import sys

from penstock.pipeline.job.main import main

sys.exit(main())
