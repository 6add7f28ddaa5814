"""Estimates the cost of a run before it starts: sizes by calculation, and time from a few real
steps, which are then discarded."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from clearhead.environment import keep_freed_memory
from clearhead.models import count_parameters
from clearhead.training.distributed import objective_of
from clearhead.training.flops import Meter
from clearhead.training.loop import take_next_step
from clearhead.training.run import Run
from clearhead.training.schedule import learning_rate
from clearhead.training.threads import ThreadChoice

N_RATES = 10_000  # number of points of a curve
FEW_STEPS = 6  # number of timed steps, unless more are asked for
WARM_UP = 2  # steps that are not timed, because the first ones allocate memory


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The sizes, the speed and the expected duration of a run."""

    parameters: int
    without_embeddings: int
    bytes_of: dict[str, int]
    """The bytes of weights, gradients and optimizer, on this rank."""
    peak_bytes: int
    """The highest number of bytes that this process has held while it took the steps."""
    targets_per_step: float
    seconds_per_step: float
    tokens_per_second: float
    utilisation: float
    steps: int
    learning_rates: dict[int, float]
    """The learning rates by step: of all steps, or of some steps at equal distances."""
    threads: ThreadChoice | None = None
    """The number of threads with which the steps were timed, and why; None: as many as torch
    uses."""

    @property
    def hours(self) -> float:
        """The expected hours of training for all steps."""
        return self.steps * self.seconds_per_step / 3600


def make_plan(
    run: Run, n_steps: int = FEW_STEPS, clock: Callable[[], float] = time.perf_counter
) -> TrainingPlan:
    """Time real steps on real batches. This changes the weights, so discard the run afterwards."""
    config, model = run.recipe.train, run.recipe.model
    assert model is not None
    keep_freed_memory()  # training does the same; without it, steps took up to 40% longer
    meter = Meter(model, run.ranks.device, config.precision, run.ranks.tensor)
    run.loader.epochs = None  # there are always enough batches to time
    times, targets = [], []
    run.objective.train()
    for step, batch in enumerate(islice(run.loader, WARM_UP + n_steps), 1):
        started = clock()
        update = take_next_step(run, batch)
        run.state = run.state.after(update)
        if step > WARM_UP:
            times.append(clock() - started)
            targets.append(update.n_targets)
            meter.count(batch, update.n_targets, times[-1])
    counted = count_parameters(objective_of(run.objective).model)
    rates: dict[str, Any] = meter.rates()
    weights = list(run.objective.parameters())
    held = [value for optimizer in run.optimizers for value in optimizer.state.values()]
    optimizer = [t for state in held for t in state.values() if isinstance(t, torch.Tensor)]
    return TrainingPlan(
        parameters=counted.total,
        without_embeddings=counted.without_embeddings,
        bytes_of={
            "weights": local_bytes(weights),
            "gradients": local_bytes(weights),
            "optimizer": local_bytes(optimizer),
        },
        peak_bytes=peak_memory(weights[0].device),
        targets_per_step=sum(targets) / len(targets),
        seconds_per_step=sum(times) / len(times),
        **rates,
        steps=config.steps,
        learning_rates={
            step: learning_rate(step, config, model.d_model)
            for step in range(1, config.steps + 1, -(-config.steps // N_RATES))
        },
    )


def local_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Return the number of bytes in the shards that this rank holds."""
    local = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    return sum(tensor.nbytes for tensor in local)


def peak_memory(device: torch.device) -> int:
    """Return the bytes that tensors took on an accelerator, or that the process took without one
    (Linux counts kilobytes, macOS counts bytes). 0: unknown, on Windows."""
    if device.type in ("cuda", "xpu"):
        return torch.accelerator.max_memory_allocated(device)
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
