#!/usr/bin/env python3
"""A whole program, as the samples of amazon_kclpy end."""

from __future__ import annotations

import sys

from amazon_kclpy import kcl
from shapes import V2

if __name__ == "__main__":
    assert len(sys.argv) == 1
    kcl_process = kcl.KCLProcess(V2())
    kcl_process.run()
