"""Small trainings with several seeds: depth with and without residuals, and five kinds of
positions. The task is to repeat the token before: the model must know the positions of the tokens,
and cannot guess them (the tokens are random; chance is 1/16)."""

from dataclasses import replace
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import clearhead as ch

FIRST, SYMBOLS = 3, 16  # ids below this are padding, start and end
LENGTH, BATCH = 16, 16
PLACEMENTS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm_placement": "post"},
    "none": {"residual": False},
}
KINDS = ("sinusoidal", "learned", "rotary", "alibi", "none")


def depths() -> dict[str, Any]:
    """Measure how often the answer is right after 300 steps, by depth: pre-norm, post-norm, and no
    residual, with three seeds each. This trains for minutes."""
    found: dict[str, Any] = {"layers": [2, 6, 12]}
    for name, option in PLACEMENTS.items():
        found[name] = [
            _summary([_right(_learn(seed, 300, n_layers=n, **option)) for seed in range(3)])
            for n in found["layers"]
        ]
    return found


def kinds() -> dict[str, Any]:
    """Train two layers for 500 steps on 16 tokens, with five seeds. Measure how often the answer is
    right at these positions, and at positions 16 to 31 of longer texts (none: the table has no
    row)."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        models = [_learn(seed, 500, n_layers=2, positions=kind) for seed in range(5)]
        near, far = [_right(model) for model in models], None
        if kind != "learned":
            far = _summary([_right(model, 2 * LENGTH, LENGTH) for model in models])
        found[kind] = {"near": _summary(near), "far": far}
    return found


def _learn(seed: int, steps: int, **options: Any) -> Any:
    base = replace(
        ch.preset("tiny-encoder"), vocab_size=FIRST + SYMBOLS, d_model=32, n_heads=4, d_ff=64,
        max_length=LENGTH if options.get("positions") == "learned" else 2 * LENGTH,
        embedding_scale=True, positions="sinusoidal", init_std=0.1, p_dropout=0.0,
    )  # fmt: skip
    model: Any = ch.build_model(replace(base, **options), seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1.0, (step + 1) / 50)
        tokens = _tokens(LENGTH, generator)
        loss = F.cross_entropy(model(tokens)[:, 1:].mT, tokens[:, :-1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def _tokens(length: int, generator: torch.Generator, batch: int = BATCH) -> Tensor:
    return torch.randint(FIRST, FIRST + SYMBOLS, (batch, length), generator=generator)


def _right(model: Any, length: int = LENGTH, start: int = 1) -> float:
    """Return the percentage of right answers at positions from `start` on, for 64 new texts."""
    tokens = _tokens(length, torch.Generator().manual_seed(99), 64)
    with torch.no_grad():
        answers = model(tokens).argmax(-1)
    return 100 * (answers[:, start:] == tokens[:, start - 1 : -1]).float().mean().item()


def _summary(seeds: list[float]) -> dict[str, float]:
    return {k: round(f(seeds), 1) for k, f in (("mean", mean), ("least", min), ("most", max))}
