"""Mutants that are no defects, shown by what they compute.

A mutant is the same model if its weights can be rearranged so that it computes what the healthy one
does (a table of positions in another order: what is learnt does not care), or if it only draws its
random numbers in another way: the same function where nothing is random, and the same distribution
where dropout is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from clearhead.config import ModelConfig
from clearhead.shapes import Tensor

N_DRAWS = 200
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
    "equal where nothing is random, equally distributed where dropout is": as_they_are,
    "the healthy model with the rows of its learned table of positions moved round": other_places,
    "the healthy model with the halves of its queries and keys exchanged": other_way_round,
    "the healthy model with the opposite sign on what sublayers write": subtracted,
    "the healthy model with the opposite sign on its learned table": opposite_places,
}


@dataclass(frozen=True)
class Behaviour:
    exact: list[Tensor]
    """What is computed without dropout: logits plain, padded and cached; the size of the
    gradient."""
    mean: Tensor
    """Of the logits with dropout, over many draws."""
    variance: Tensor


def behaviour(model: Any, config: ModelConfig) -> Behaviour:
    exact = compute(model, config)
    return Behaviour(exact, *draw(model, config))


def prepared(model: Any, config: ModelConfig, change: Change) -> Any:
    """In double precision, with weights that are rearranged, and none of which is fresh: zeros and
    ones would hide their part."""
    model = model.double()
    generator = torch.Generator().manual_seed(1)
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for tensor in weights.values():
            tensor += 0.3 * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
        change(weights, config)
    return model


def compute(model: Any, config: ModelConfig) -> list[Tensor]:
    given, real = _given(config)
    model.eval().zero_grad()
    logits = model(*given)
    logits[real].logsumexp(dim=-1).sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    seen = [logits.detach()[real]]
    seen.append(torch.stack([g.square().sum() for g in gradients]).sum().sqrt())
    with torch.no_grad():
        if config.family == "decoder":
            cache = model.new_cache(len(real))
            model(given[0][:, :8], cache=cache)
            seen.append(model(given[0][:, 8:], cache=cache)[real[:, 8:]])
        if config.family == "encoder-decoder":
            cache = model.new_cache(model.encode(given[0]))
            seen.append(model.decode(given[1], cache=cache))
    return seen


def draw(model: Any, config: ModelConfig) -> tuple[Tensor, Tensor]:
    given, real = _given(config)
    model.train()
    torch.manual_seed(2)
    with torch.no_grad():
        drawn = torch.stack([model(*given)[real] for _ in range(N_DRAWS)])
    return drawn.mean(dim=0), drawn.var(dim=0)


def _given(config: ModelConfig) -> tuple[list[Tensor], Tensor]:
    """A padded batch, and which of the tokens that get logits are real."""
    tokens = torch.randint(4, 61, (3, 11), generator=torch.Generator().manual_seed(3))
    target = tokens.flip(1)[:, :7].contiguous()
    tokens[1, -3:] = tokens[2, :3] = config.pad_id or 0
    if config.family == "encoder-decoder":
        return [tokens, target], torch.ones_like(target, dtype=torch.bool)
    return [tokens], tokens != (config.pad_id or 0)


def is_same(model: Any, config: ModelConfig, right: Behaviour) -> bool:
    """Equal where nothing is random; elsewhere equal means (within six standard errors, for some
    thousands of logits) and equal variances."""
    if not all(
        a.shape == b.shape and torch.allclose(a, b, rtol=1e-6, atol=1e-7)
        for a, b in zip(compute(model, config), right.exact)
    ):
        return False
    mean, variance = draw(model, config)
    error = ((variance + right.variance) / N_DRAWS).sqrt()
    means = bool(((mean - right.mean).abs() <= 6 * error + 1e-7).all())
    ratio = float((variance.mean() + 1e-12) / (right.variance.mean() + 1e-12))
    return means and 0.9 < ratio < 1.1


def why_same(
    build: Callable[[ModelConfig], Any], rights: dict[ModelConfig, Behaviour]
) -> str | None:
    """The change of weights under which models are what the healthy ones are."""
    for name, change in CHANGES.items():
        try:
            if all(is_same(prepared(build(c), c, change), c, right) for c, right in rights.items()):
                return name
        except Exception:
            continue  # a change that does not fit
    return None
