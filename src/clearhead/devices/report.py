"""Runs all checks on one device, and makes a report that users can send in."""

import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from clearhead.devices.checks import CHECKS, DeviceCheck, DeviceError
from clearhead.errors import ConfigError
from clearhead.training.state import versions


class CheckResult(NamedTuple):
    """The result of one check."""

    name: str
    passed: bool
    message: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """What a device can and cannot do. `print` shows the report."""

    device: str
    machine: dict[str, str]
    """Versions, system and device: nothing that names a person or a place."""
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """Tell whether every check passed."""
        return all(result.passed for result in self.results)

    def __str__(self) -> str:
        failed = sum(not result.passed for result in self.results)
        verdict = (
            f"{failed} of {len(self.results)} checks failed" if failed else "all checks passed"
        )
        lines = [f"clearhead selftest on {self.device}: {verdict}", ""]
        lines += [f"{name:<20} {value}" for name, value in self.machine.items()] + [""]
        for result in self.results:
            mark = "passed" if result.passed else "FAILED"
            lines.append(f"{mark}  {result.name:<20} {result.seconds:>6.1f} s  {result.message}")
        return "\n".join(lines)


def run_selftest(device: str | None = None, checks: Sequence[DeviceCheck] = CHECKS) -> SelfTest:
    """Run the checks on a device: "cuda", "mps" or "cpu"; None: the accelerator that torch finds,
    or the CPU."""
    tested = _device(device)
    results = tuple(_result(check, tested) for check in checks)
    return SelfTest(device=str(tested), machine=dict(_machine(tested)), results=results)


def _device(name: str | None) -> torch.device:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if name is None:
        return accelerator or torch.device("cpu")
    possible = ["cpu"] if accelerator is None else [accelerator.type, "cpu"]
    try:
        device = torch.device(name)
    except RuntimeError:  # no name of a device
        device = None
    count = torch.accelerator.device_count()
    if device is None or device.type not in possible or (device.index or 0) >= max(1, count):
        rule = f"is not a device that torch finds here ({', '.join(possible)})"
        raise ConfigError("device", name, rule, f"try {possible[0]}")
    return device


def _result(check: DeviceCheck, device: torch.device) -> CheckResult:
    started = time.perf_counter()
    try:
        passed, message = True, check(device)
    except DeviceError as error:
        passed, message = False, str(error)
    except Exception as error:  # the report includes whatever a driver raises
        first = (str(error).splitlines() or [""])[0]
        passed, message = False, f"{type(error).__name__}: {first}"
    seconds = time.perf_counter() - started
    return CheckResult(check.__name__, passed, message, seconds)


def _machine(device: torch.device) -> Iterator[tuple[str, str]]:
    yield from versions().items()
    yield "system", f"{platform.system()} {platform.release()} {platform.machine()}"
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        yield "device", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
        yield "CUDA", f"{torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
        yield "TF32", f"products {torch.backends.cuda.matmul.allow_tf32}"
    elif device.type == "cpu":
        yield (
            "device",
            f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads",
        )
