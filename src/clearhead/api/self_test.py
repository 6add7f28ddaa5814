"""Tests whether a device of this machine computes correctly."""

from clearhead.devices import SelfTest, run_selftest
from clearhead.errors import InputError, type_of


def selftest(device: str | None = None) -> SelfTest:
    """Check a device: invariants, a training step, a resumed run and decoding, compared with the
    CPU in fp64. `device` is "cuda", "mps" or "cpu" (None: the accelerator that torch finds, or the
    CPU). `print` shows a report that you can send in; `passed` says whether every check passed."""
    if not isinstance(device, str | None):
        raise InputError(f"device={device!r:.60} is {type_of(device)}; give a name, such as 'cpu'")
    return run_selftest(device)
