"""The training step that is measured, ours and the rivals', at a few sizes, and how it is timed."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import rivals
from benchmarks.rivals import PAD, Size
from clearhead.config import ModelConfig
from clearhead.models import build_model
from clearhead.training.loss import cross_entropy
from clearhead.training.optimizer import adamw

Step = Callable[[], None]


@dataclass(frozen=True)
class Setting:
    name: str
    family: str
    size: Size

    def our_config(self, p_dropout: float) -> ModelConfig:
        decoder = self.family == "decoder"
        size = self.size
        return ModelConfig(
            family="decoder" if decoder else "encoder-decoder",
            vocab_size=size.vocab_size,
            d_model=size.d_model,
            n_heads=size.n_heads,
            d_ff=size.d_ff,
            n_layers=size.n_layers,
            max_length=size.length,
            positions="learned" if decoder else "sinusoidal",
            embedding_scale=not decoder,
            norm_placement="pre" if decoder else "post",
            feed_forward="gelu-tanh" if decoder else "relu",
            p_dropout=p_dropout,
            p_attention_dropout=p_dropout,
        )

    def rivals(self, p_dropout: float) -> dict[str, nn.Module]:
        if self.family == "decoder":
            classes = (rivals.BareDecoder, rivals.TorchDecoder, rivals.HuggingFaceGPT2)
        else:
            classes = (rivals.BareSeq2Seq, rivals.TorchSeq2Seq, rivals.HuggingFaceMarian)
        names = ("bare torch", "nn.Transformer", "Hugging Face")
        return {name: cls(self.size, p_dropout) for name, cls in zip(names, classes)}

    def batch(self) -> tuple[list[Tensor], Tensor]:
        """Inputs and targets. Sources are 75-100% full, as bucketed batches are."""
        size, generator = self.size, torch.Generator().manual_seed(0)
        shape = (size.batch, size.length)
        tokens = torch.randint(1, size.vocab_size, shape, generator=generator)
        targets = torch.randint(1, size.vocab_size, shape, generator=generator)
        if self.family == "decoder":
            return [tokens], targets
        shortest = size.length * 3 // 4
        lengths = torch.randint(shortest, size.length + 1, (size.batch, 1), generator=generator)
        source = tokens.masked_fill(torch.arange(size.length) >= lengths, PAD)
        return [source, tokens], targets

    def matmul_flops(self) -> float:
        """Of one step: 2 per multiply-add, forward once and backward twice."""
        s = self.size
        attention = 4 * s.d_model**2 + 2 * s.length * s.d_model
        feed_forward = 2 * s.d_model * s.d_ff
        if self.family == "decoder":
            per_token = s.n_layers * (attention + feed_forward)
        else:
            per_token = s.n_layers * (3 * attention + 2 * feed_forward)
        return 3 * 2 * s.batch * s.length * (per_token + s.d_model * s.vocab_size)


SETTINGS = [
    Setting("decoder 6 × 384", "decoder", Size(384, 6, 1536, 6, 8000, 256, 8)),
    Setting("encoder-decoder 3+3 × 256", "encoder-decoder", Size(256, 4, 1024, 3, 8000, 20, 64)),
    Setting("encoder-decoder 4+4 × 128", "encoder-decoder", Size(128, 4, 256, 4, 6000, 16, 256)),
]


def our_step(setting: Setting, p_dropout: float) -> Step:
    model = build_model(setting.our_config(p_dropout))
    optimizer = adamw(model, lr=1e-4)
    inputs, targets = setting.batch()
    options = {"real": "all"} if setting.family == "decoder" else {"target_real": "all"}

    def step() -> None:
        loss = cross_entropy(model(*inputs, **options), targets, ignore_id=PAD)
        (loss.nats / loss.n_targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def rival_step(setting: Setting, model: nn.Module) -> Step:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs, targets = setting.batch()

    def step() -> None:
        logits = model(*inputs)
        F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def all_times(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contestant's steps; they take turns, so that a disturbance of the machine
    meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return times


def best_times(steps: dict[str, Step], rounds: int) -> dict[str, float]:
    """Seconds of each contestant's fastest step."""
    return {name: min(times) for name, times in all_times(steps, rounds).items()}


def shares_of(step: Step) -> dict[str, float]:
    """The operators that take most of a step's time, and their share of it."""
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            step()
    operators = profiler.key_averages()
    total = sum(operator.self_cpu_time_total for operator in operators)
    largest = sorted(operators, key=lambda operator: -operator.self_cpu_time_total)[:12]
    return {operator.key: round(operator.self_cpu_time_total / total, 3) for operator in largest}
