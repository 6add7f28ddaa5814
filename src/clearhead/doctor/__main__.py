"""Runs the doctor's command: `python -m transformer_doctor FILE.py:NAME`."""

import sys

from .command import main

sys.exit(main())
