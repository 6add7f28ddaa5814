"""The default folders."""

from pathlib import Path

PREPARED = Path("prepared")
"""The folder with the token files of each recipe, by the recipe's name."""
RUNS = Path("runs")
"""The folder with the run of each recipe, by the recipe's name."""
STUDIES = Path("studies")
"""The folder with the runs and results of each study, by the study's name."""
