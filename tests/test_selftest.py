"""`clearhead selftest` passes on a sound device and catches planted errors of a device."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import clearhead as ch
from clearhead.cli import main
from clearhead.devices import run_selftest
from clearhead.devices.checks import (
    CHECKS,
    DeviceCheck,
    DeviceError,
    decoding,
    half_precision,
    learning,
    like_the_cpu,
    masked_attention,
    padding_and_future,
    products,
    resuming,
    same_twice,
)
from clearhead.errors import ConfigError, InputError

CPU = torch.device("cpu")
MATRIX_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}


class BrokenDevice(TorchDispatchMode):
    """Changes the results of some operations, in fp32 only: the reference in fp64 stays right."""

    def __init__(self, names: set[str], change: Any) -> None:
        super().__init__()
        self.names, self.change = names, change

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._opname in self.names and result.dtype == torch.float32 and result.numel():
            return self.change(result)
        return result


def wrong_in_one_place(result: torch.Tensor) -> torch.Tensor:
    """By a thousandth of the largest number."""
    result = result.clone()
    result.view(-1)[-1] += 1e-3 * result.abs().max()
    return result


@contextmanager
def nan_from_minus_infinity(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A kernel that adds -inf to the scores and takes the softmax: rows of nothing are NaN."""

    def kernel(queries, keys, values, attn_mask=None, is_causal=False, **_):
        group = queries.shape[1] // keys.shape[1]
        keys, values = (each.repeat_interleave(group, dim=1) for each in (keys, values))
        scores = queries @ keys.transpose(-2, -1) / queries.shape[-1] ** 0.5
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        return scores.softmax(-1) @ values

    with monkeypatch.context() as patched:
        patched.setattr(F, "scaled_dot_product_attention", kernel)
        yield


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_cpu_passes_every_check(check: DeviceCheck):
    assert check(CPU)


@pytest.mark.parametrize("check", [products, like_the_cpu])
def test_a_wrong_product_is_caught(check: DeviceCheck):
    with BrokenDevice(MATRIX_PRODUCTS, wrong_in_one_place), pytest.raises(DeviceError):
        check(CPU)


@pytest.mark.parametrize("check", [same_twice, resuming])
def test_a_kernel_that_is_not_deterministic_is_caught(check: DeviceCheck):
    """Dropout is seeded anew at each step, and so is the noise: what draws it must be apart."""
    apart = torch.Generator().manual_seed(1)

    def noisy(result: torch.Tensor) -> torch.Tensor:
        noise = torch.empty_like(result).uniform_(-1e-6, 1e-6, generator=apart)
        return result * (1 + noise)

    with BrokenDevice({"embedding_dense_backward"}, noisy), pytest.raises(DeviceError):
        check(CPU)


def test_nan_from_a_mask_of_minus_infinity_is_caught(monkeypatch: pytest.MonkeyPatch):
    caught = pytest.raises(DeviceError, match="fused attention with a mask gives NaN")
    with nan_from_minus_infinity(monkeypatch), caught:
        masked_attention(CPU)


def test_a_mask_that_leaks_is_caught(monkeypatch: pytest.MonkeyPatch):
    real = F.scaled_dot_product_attention

    def leaking(*tensors, is_causal=False, **settings):
        return real(*tensors, is_causal=False, **settings)

    monkeypatch.setattr(F, "scaled_dot_product_attention", leaking)
    with pytest.raises(DeviceError, match="a later token changes earlier logits"):
        padding_and_future(CPU)


def test_a_cast_that_rounds_to_nothing_is_caught():
    """Products in bf16 that are 0: nothing is NaN, and nothing is learnt."""

    class Vanishing(BrokenDevice):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            vanish = func._opname in self.names and result.dtype == torch.bfloat16
            return torch.zeros_like(result) if vanish else result

    with Vanishing(MATRIX_PRODUCTS, None), pytest.raises(DeviceError, match="in bf16"):
        half_precision(CPU)


def test_an_optimizer_that_does_nothing_is_caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: None)
    with pytest.raises(DeviceError, match="30 steps on one batch"):
        learning(CPU)


def test_a_cache_that_is_read_wrongly_is_caught():
    """One token at a time, a product of one row is another kernel: here it is wrong."""

    def swapped(result: torch.Tensor) -> torch.Tensor:
        return result.flip(-1) if result.shape[0] == 1 else result

    with BrokenDevice({"mm", "addmm"}, swapped), pytest.raises(DeviceError, match="with the cache"):
        decoding(CPU)


def test_what_a_driver_raises_is_in_the_report():
    def unsupported(device: torch.device) -> str:
        raise NotImplementedError(f"no such operator on {device}\nand a long list")

    found = run_selftest("cpu", [unsupported, lambda device: "fine"])
    assert not found.passed
    assert "1 of 2 checks failed" in str(found)
    assert "FAILED  unsupported" in str(found)
    assert "NotImplementedError: no such operator on cpu\n" in str(found)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match=r"device='tpu' is not a device that torch finds here"):
        run_selftest("tpu")
    with pytest.raises(InputError, match="device=5 is an int; give a name"):
        ch.selftest(5)  # pyright: ignore[reportArgumentType]


def test_the_command_prints_and_writes_the_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("clearhead.devices.report.CHECKS", None)  # only through the default
    monkeypatch.setattr(run_selftest, "__defaults__", (None, (products,)))
    assert main(["selftest", "--device", "cpu", "--out", str(tmp_path / "report.txt")]) == 0
    report = (tmp_path / "report.txt").read_text()
    assert report.startswith("clearhead selftest on cpu: all checks passed")
    assert report.strip() in capsys.readouterr().out
    assert "passed  products" in report and "torch" in report
