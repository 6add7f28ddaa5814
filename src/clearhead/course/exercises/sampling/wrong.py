"""Wrong answers to exercise 13."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import Mistake, combined
from clearhead.course.exercises.sampling import solution

ChancesAnswer = Callable[..., Tensor]


def _divided(logits: Tensor, temperature: float) -> Tensor:
    return logits / temperature


def _best(logits: Tensor, k: int) -> Tensor:
    return logits.masked_fill(logits < logits.topk(k, dim=1).values[:, -1:], -torch.inf)


def _worst(logits: Tensor, k: int) -> Tensor:
    least = logits.topk(k, dim=1, largest=False).values[:, -1:]
    return logits.masked_fill(logits > least, -torch.inf)


def _zeros(logits: Tensor, k: int) -> Tensor:
    return logits.masked_fill(logits < logits.topk(k, dim=1).values[:, -1:], 0.0)


def _build(
    heated: Any = _divided,
    cut: Any = _best,
    counted: str = "before",
    renormalised: bool = True,
    placed: bool = True,
) -> ChancesAnswer:
    """The steps, with one or two of them wrong."""

    def chances(logits: Tensor, *, temperature: float, top_k: int | None, top_p: float) -> Tensor:
        if temperature == 0:
            return solution.chances(logits, temperature=0, top_k=top_k, top_p=top_p)
        logits = heated(logits, temperature)
        if top_k is not None and top_k < logits.shape[1]:
            logits = cut(logits, top_k)
        falling, order = logits.softmax(dim=1).sort(dim=1, descending=True)
        summed = falling.cumsum(dim=1)
        over = summed - falling >= top_p if counted == "before" else summed > top_p
        if counted == "but the first":
            over[:, 0] = False
        falling = falling.masked_fill(over & (top_p < 1), 0.0)
        kept = torch.zeros_like(falling).scatter(1, order, falling) if placed else falling
        return kept / kept.sum(dim=1, keepdim=True) if renormalised else kept

    return chances


def _p_before_heat(
    logits: Tensor, *, temperature: float, top_k: int | None, top_p: float
) -> Tensor:
    """Top-k and top-p look at temperature 1."""
    kept = solution.chances(logits, temperature=1.0, top_k=top_k, top_p=top_p) > 0
    return (logits / temperature).masked_fill(~kept, -torch.inf).softmax(dim=1)


def _p_of_all(logits: Tensor, *, temperature: float, top_k: int | None, top_p: float) -> Tensor:
    """Top-p looks at all tokens, not at what top-k has left."""
    by_k = solution.chances(logits, temperature=temperature, top_k=top_k, top_p=1.0) > 0
    by_p = solution.chances(logits, temperature=temperature, top_k=None, top_p=top_p) > 0
    return (logits / temperature).masked_fill(~(by_k & by_p), -torch.inf).softmax(dim=1)


def _nan_at_0(logits: Tensor, *, temperature: float, top_k: int | None, top_p: float) -> Tensor:
    return _build()(logits, temperature=temperature or 1e-45, top_k=top_k, top_p=top_p)


def _divides_by_0(chances: Any) -> bool:
    logits = torch.tensor([[0.5, 3.0, 1.0]])
    usual = chances(logits, temperature=0.7, top_k=2, top_p=0.9)
    right = solution.chances(logits, temperature=0.7, top_k=2, top_p=0.9)
    try:
        cold = chances(logits, temperature=0, top_k=None, top_p=1.0)
    except (ZeroDivisionError, RuntimeError):
        return torch.allclose(usual, right, atol=1e-4)
    return torch.allclose(usual, right, atol=1e-4) and bool(cold.isnan().any())


def _greedy(probabilities: Tensor, u: Tensor) -> Tensor:
    return probabilities.argmax(dim=1)


def _reaches(probabilities: Tensor, u: Tensor) -> Tensor:
    """≥ instead of >."""
    return (probabilities.cumsum(dim=1) >= u[:, None]).int().argmax(dim=1)


def _uniform(probabilities: Tensor, u: Tensor) -> Tensor:
    return (u * probabilities.shape[1]).long()


def _before(probabilities: Tensor, u: Tensor) -> Tensor:
    """The last token at which the sum is still below."""
    return (solution.draw(probabilities, u) - 1).clamp(min=0)


def _own_numbers(probabilities: Tensor, u: Tensor) -> Tensor:
    return torch.multinomial(probabilities, 1)[:, 0]


def _ignores_u(draw: Any) -> bool:
    """The same u gives different tokens, or different u the same."""
    p, u = torch.full((64, 16), 1 / 16), torch.full((64,), 0.5)
    return len(set(draw(p, u).tolist())) > 1


WRONG_STEPS: dict[str, dict[str, Any]] = {
    "heated": {
        "multiplied by T": lambda logits, t: logits * t,
        "no temperature": lambda logits, t: logits,
    },
    "cut": {"the k worst": _worst, "0 instead of −inf": _zeros},
    "counted": {"without the token that reaches p": "with it"},
    "renormalised": {"not renormalised": False},
    "placed": {"left in falling order": False},
}
MISTAKES = [
    *combined("chances", _build, WRONG_STEPS),
    Mistake("without the token that reaches p", "chances", _build(counted="but the first")),
    Mistake("cut before the temperature", "chances", _p_before_heat),
    Mistake("top-p of all tokens", "chances", _p_of_all),
    Mistake("divides by 0", "chances", _nan_at_0, fits=_divides_by_0),
    Mistake("always the likeliest", "draw", _greedy),
    Mistake("reaches, not exceeds", "draw", _reaches),
    Mistake("all tokens alike", "draw", _uniform),
    Mistake("one token too early", "draw", _before),
    Mistake("numbers of its own", "draw", _own_numbers, fits=_ignores_u),
]
