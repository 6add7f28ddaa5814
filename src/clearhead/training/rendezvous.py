"""Lets the processes that torchrun starts find their devices and each other."""

import time
import uuid
from datetime import timedelta

import torch
import torch.distributed as dist

from clearhead.errors import ClearheadError

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl", "xpu": "cpu:gloo,xpu:xccl"}
"""The backend by which several ranks exchange tensors, by kind of device."""


def device_of(local_rank: int, kind: str) -> torch.device:
    """Return the device of one of several ranks. If ranks cannot exchange tensors with a kind of
    device, such as Apple's, they compute on the CPU."""
    if kind == "cpu" or kind not in BACKENDS:
        return torch.device("cpu")
    n_devices = torch.accelerator.device_count()
    if local_rank >= n_devices:
        raise ClearheadError(
            f"local rank {local_rank} has no device: this machine has {n_devices} ({kind}); start "
            f"one process for each: torchrun --nproc-per-node {n_devices}"
        )
    return torch.device(kind, local_rank)


def agree_on_a_start(store: dist.Store, rank: int, world: int, timeout: timedelta) -> str:
    """Agree on a name for this start of the ranks. torchrun keeps one store for all its restarts,
    and torch 2.13 would let ranks wait for dead ranks whose addresses are still in it. Since each
    machine's torchrun counts only its own restarts, rank 0 makes up the name. Another rank may read
    an older name: a name is valid if rank 0 has answered this very process."""
    me, patience = uuid.uuid4().hex, f"waited {timeout.total_seconds() / 60:g} minutes"
    remedy = "see the output of torchrun on its machine, or raise train.timeout_minutes"
    if rank == 0:
        store.set("clearhead/start", me)
        keys = [f"{me}/{other}" for other in range(1, world)]
        try:
            store.wait(keys, timeout)
        except RuntimeError as error:
            silent = next(other for other, key in enumerate(keys, 1) if not store.check([key]))
            raise ClearheadError(f"rank 0 {patience} for rank {silent}; {remedy}") from error
        store.set(f"{me}/answer", " ".join(store.get(key).decode() for key in keys))
        return me
    deadline = time.monotonic() + timeout.total_seconds()
    while time.monotonic() < deadline:
        if store.check(["clearhead/start"]):
            name = store.get("clearhead/start").decode()
            store.set(f"{name}/{rank}", me)
            if store.check([f"{name}/answer"]) and me in store.get(f"{name}/answer").decode():
                return name
        time.sleep(0.2)
    raise ClearheadError(f"rank {rank} {patience} for rank 0; {remedy}")
