"""Tests whether a device computes correctly: invariants, a step, a resumed run and decoding on
it."""

from clearhead.devices.report import SelfTest, run_selftest

__all__ = ["SelfTest", "run_selftest"]
