"""``python -m shardway`` is the command ``shardway``."""

import sys

from shardway.cli import main

if __name__ == "__main__":
    sys.exit(main())
