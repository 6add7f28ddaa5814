"""Whether a device computes what it should: invariants, a step, a resume and a decode on it."""

from clearhead.devices.report import SelfTest, run_selftest

__all__ = ["SelfTest", "run_selftest"]
