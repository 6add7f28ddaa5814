"""The default folders."""

from pathlib import Path

PREPARED = Path("prepared")
"""Holds the token files of each recipe, by its name."""
RUNS = Path("runs")
"""Holds the run of each recipe, by its name."""
STUDIES = Path("studies")
"""Holds the runs and results of each study, by its name."""
