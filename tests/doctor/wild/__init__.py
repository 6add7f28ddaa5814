"""Transformers by other people, and a judgement of every finding: `python -m tests.doctor.wild`."""
