"""Mutants that are no defects, shown by what they compute.

A mutant is the same model if its weights can be rearranged so that it computes what the healthy one
does (a table of positions in another order: what is learnt does not care), or if it only draws its
random numbers in another way: the same function where nothing is random, and the same distribution
where dropout is.
"""

from collections.abc import Callable
from typing import Any

import torch

from clearhead.config import ModelConfig
from clearhead.shapes import Tensor

N_DRAWS = 400
Change = Callable[[dict[str, Tensor], ModelConfig], None]
"""Rearranges a model's weights in place."""


def as_they_are(_weights: dict[str, Tensor], _config: ModelConfig) -> None:
    pass


def other_places(weights: dict[str, Tensor], config: ModelConfig) -> None:
    """The rows of a learned table of positions, moved round by as much as was left free twice."""
    for name, tensor in weights.items():
        if name.endswith("positions.weight"):
            tensor.copy_(tensor.roll(-2 * config.first_position, dims=0))


def other_way_round(weights: dict[str, Tensor], config: ModelConfig) -> None:
    """In queries and keys, the two halves of each head exchanged: a rotation then turns the other
    way."""
    d_head = config.d_model // config.n_heads
    for name, tensor in weights.items():
        if ".query." in name or ".key." in name:
            heads = tensor.unflatten(0, (-1, 2, d_head // 2))
            tensor.copy_(heads.flip(1).flatten(0, 2))


def subtracted(weights: dict[str, Tensor], _config: ModelConfig) -> None:
    """What a sublayer writes, with the opposite sign."""
    for name, tensor in weights.items():
        if "_attention.output." in name or ".down." in name:
            tensor.neg_()


def opposite_places(weights: dict[str, Tensor], _config: ModelConfig) -> None:
    """A learned table of positions with the opposite sign."""
    for name, tensor in weights.items():
        if name.endswith("positions.weight"):
            tensor.neg_()


CHANGES: dict[str, Change] = {
    "nothing that counts is changed: equal where nothing is random, equally distributed where dropout "
    "is": as_they_are,
    "the healthy model with the rows of its learned table of positions moved round": other_places,
    "the healthy model with the halves of its queries and keys exchanged": other_way_round,
    "the healthy model with the opposite sign on what sublayers write": subtracted,
    "the healthy model with the opposite sign on its learned table": opposite_places,
}


def behaviour(build: Callable[[ModelConfig], Any], config: ModelConfig, change: Change) -> Any:
    """What a model with rearranged weights computes: plain, padded, cached, without dropout; the
    size of its gradient; mean and variance of its logits with dropout."""
    model = build(config).double().eval()
    generator = torch.Generator().manual_seed(1)
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for tensor in weights.values():  # fresh norms and biases would hide their part
            tensor += 0.3 * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
        change(weights, config)
    tokens = torch.randint(4, 61, (3, 11), generator=generator)
    tokens[1, -3:] = tokens[2, :3] = config.pad_id or 0
    real = tokens != (config.pad_id or 0)
    pair = config.family == "encoder-decoder"
    given = [tokens, tokens[:1].expand(3, -1)] if pair else [tokens]
    logits = model(*given)
    logits.logsumexp(dim=-1).sum().backward()
    gradients = [p.grad for p in weights.values() if p.grad is not None]
    seen = [logits.detach() if pair else logits.detach()[real]]
    seen.append(torch.stack([g.square().sum() for g in gradients]).sum().sqrt())
    with torch.no_grad():
        if config.family == "decoder":
            cache = model.new_cache(3)
            model(tokens[:, :8], cache=cache)
            seen.append(model(tokens[:, 8:], cache=cache)[real[:, 8:]])
        model.train()
        torch.manual_seed(2)
        drawn = torch.stack([model(*given) for _ in range(N_DRAWS)])
        drawn = drawn if pair else drawn[:, real]
    return seen, drawn.mean(dim=0), drawn.var(dim=0)


def same(one: Any, other: Any) -> bool:
    """Equal where nothing is random; elsewhere equal means (within six standard errors, for some
    thousands of logits) and equal variances."""
    exact = all(
        a.shape == b.shape and torch.allclose(a, b, rtol=1e-6, atol=1e-7)
        for a, b in zip(one[0], other[0])
    )
    if not exact:
        return False
    error = ((one[2] + other[2]) / N_DRAWS).sqrt()
    means = bool(((one[1] - other[1]).abs() <= 6 * error + 1e-7).all())
    ratio = float((one[2].mean() + 1e-12) / (other[2].mean() + 1e-12))
    return means and 0.9 < ratio < 1.1
