"""Wrong answers to exercise 19: a defect that is left, or another in its place."""

import math
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import Mistake, combined
from clearhead.course.exercises.specimen import checks, solution
from clearhead.course.exercises.specimen.solution import Specimen


def _forbidden(scores: Tensor) -> Tensor:
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -torch.inf)


def _added(scores: Tensor) -> Tensor:
    return scores - torch.ones(scores.shape[-2:]).triu(1)


def _not_itself(scores: Tensor) -> Tensor:
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(0)
    hidden[0, 0] = False
    return scores.masked_fill(hidden, -torch.inf)


def _pre(x: Tensor, norm: Any, f: Any) -> Tensor:
    return x + f(norm(x))


def _overwritten(x: Tensor, norm: Any, f: Any) -> Tensor:
    x = norm(x)
    return x + f(x)


def _build(
    mask: Any = _forbidden,
    residual: Any = _pre,
    width: str = "head",
    factor: float = 0.5,
    on_positions: bool = False,
    times: int = 1,
) -> type[Specimen]:
    """The reference in one function, with one or two steps wrong."""

    class Wrong(Specimen):
        def forward(self, tokens: Tensor) -> Tensor:
            d = self.tokens.embedding_dim
            places = self.positions[: tokens.shape[1]]  # type: ignore[index]
            x = self.tokens(tokens) * d**factor + places * (d**factor if on_positions else 1)
            for _ in range(times):
                x = self.dropout(x)
            for layer in self.layers:
                x = _layer(layer, x)
            return self.norm(x) @ self.tokens.weight.T

    def _layer(layer: Any, x: Tensor) -> Tensor:
        for hook in layer._forward_pre_hooks.values():
            hook(layer, (x,))
        x = residual(x, layer.norm_1, lambda y: layer.dropout(_attend(layer.attention, y)))
        return residual(x, layer.norm_2, lambda y: layer.dropout(layer.down(layer.up(y).relu())))

    def _attend(attention: Any, x: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(2, (attention.n_heads, -1)).transpose(1, 2)
            for part in (attention.query, attention.key, attention.value)
        )
        over = q.shape[-1] if width == "head" else attention.d_model
        scores = q @ k.transpose(-2, -1) / (math.sqrt(over) if width != "none" else 1.0)
        weights = mask(scores).softmax(dim=-1)
        return attention.output((weights @ v).transpose(1, 2).flatten(2))

    return Wrong


class _PartRemoved(Specimen):
    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        for layer in self.layers:
            layer.norm_1 = torch.nn.Identity()


def _misses_a_part(kind: Any) -> bool:
    wanted = dict(solution.Specimen(*checks.SIZES, 0.1).named_parameters())
    return len(dict(kind(*checks.SIZES, 0.1).named_parameters())) < len(wanted)


def _drops(low: float, high: float) -> Any:
    return lambda kind: low < checks.dropped(kind) < high


def _cases() -> set[str]:
    """The whole names."""
    return {"causal.leak", "attention_scale.d_model", "residual.after_norm", "dropout.twice"} | {
        "embedding_scale.drowned"
    }


WRONG_STEPS: dict[str, dict[str, Any]] = {
    "mask": {"the future still leaks": _added, "a token does not see itself": _not_itself},
    "residual": {"residual still after the norm": _overwritten},
    "width": {"still √d_model": "model", "no scale": "none"},
    "factor": {"tokens still drowned": 0.0, "times d_model": 1.0},
}
MODEL = "Specimen"
MISTAKES = [
    Mistake("cases instead of checks", "findings", _cases),
    Mistake("errors only", "findings", lambda: {"causal", "residual", "dropout"}),
    *combined(MODEL, _build, WRONG_STEPS),
    Mistake("positions scaled too", MODEL, _build(on_positions=True)),
    Mistake("a part removed", MODEL, _PartRemoved, fits=_misses_a_part),
    Mistake("dropout still twice", MODEL, _build(times=2), fits=_drops(0.47, 0.55)),
    Mistake("no dropout on the embedding", MODEL, _build(times=0), fits=_drops(-1, 0.01)),
]
