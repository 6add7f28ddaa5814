"""Thousands of changed folders and files: `python -m tests.fuzz`."""
