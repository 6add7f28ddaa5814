"""Counts the operations of a step, and the share of the machine's peak that it reaches."""

import time
from collections import deque
from functools import cache

import torch

from clearhead.config.model import ModelConfig
from clearhead.config.train import Precision
from clearhead.data.batches import Batch, PairBatch
from clearhead.training.loss import HALF

RECENT = 50  # number of steps over which rates are taken


def step_flops(model: ModelConfig, rows: int, source: int, target: int) -> float:
    """Count the operations of the matrix products of one step: 2 for each multiply-add, once
    forward and twice backward. `target` is the length of the only sequence if there is no source.
    Attention is counted in full, as it is computed, though half of it is masked."""
    width, heads = model.d_model, model.n_heads * model.head_width
    keys = model.kv_heads * model.head_width
    gates = 3 if model.feed_forward in ("swiglu", "geglu") else 2
    feed_forward = gates * width * model.d_ff

    def attention(queries: int, looked_at: int) -> float:
        projections = 2 * queries * width * heads + 2 * looked_at * width * keys
        return projections + 2 * queries * looked_at * heads

    output = target * width * model.output_vocab_size
    if model.labels:  # operations for one vector
        output = width * (width + len(model.labels))
    if model.family == "encoder-decoder":
        encoder = model.n_layers * (attention(source, source) + source * feed_forward)
        decoder = attention(target, target) + attention(target, source) + target * feed_forward
        products = encoder + model.decoder_layers * decoder + output
    else:
        products = model.n_layers * (attention(target, target) + target * feed_forward) + output
    return 6.0 * rows * products


def batch_flops(model: ModelConfig, batch: Batch) -> float:
    """Count the operations of one training step on this batch."""
    if isinstance(batch, PairBatch):
        return step_flops(
            model, len(batch.source), batch.source.shape[1], batch.target_input.shape[1]
        )
    return step_flops(model, len(batch.inputs), 0, batch.inputs.shape[1])


@cache
def matmul_peak(device: torch.device, dtype: torch.dtype, rounds: int = 5) -> float:
    """Measure the FLOP/s of a large square product, which is about the highest rate that a step
    could reach."""
    # An accelerator multiplies many large matrices: starting one product and waiting for it takes
    # longer than a small product itself.
    size, repeats = (768, 1) if device.type == "cpu" else (4096, 10)
    a, b = torch.randn(2, size, size, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(repeats - 1):
            torch.mm(a, b)
        torch.mm(a, b).sum().item()  # waits for all products
        best = min(best, time.perf_counter() - started)
    return repeats * 2 * size**3 / best


class Meter:
    """Measures rates over the last steps."""

    def __init__(
        self,
        model: ModelConfig,
        device: torch.device,
        precision: Precision = "fp32",
        sharing: int = 1,
    ) -> None:
        """`sharing` is the number of ranks that compute each matrix product together."""
        dtypes = {torch.float32, HALF.get(precision, torch.float32)}
        self.model, self.sharing = model, sharing
        self.peak = max(matmul_peak(device, dtype) for dtype in dtypes)
        self.steps: deque[tuple[int, float, float]] = deque(maxlen=RECENT)

    def count(self, batch: Batch, n_targets: int, seconds: float) -> None:
        """Count a step. `batch` is this rank's batch, and `n_targets` is the number of targets on
        all ranks."""
        flops = batch_flops(self.model, batch) / self.sharing
        self.steps.append((n_targets, flops, seconds))
        # If a step was faster than the timed product, the machine was busy during the timing, and
        # the product is not the peak.
        self.peak = max(self.peak, flops / max(seconds, 1e-9))

    def rates(self) -> dict[str, float]:
        """Return the tokens per second and the share of the peak over the last steps."""
        targets, flops, seconds = (sum(column) for column in zip(*self.steps))
        return {
            "tokens_per_second": round(targets / seconds, 1),
            "utilisation": round(flops / seconds / self.peak, 4),
        }
