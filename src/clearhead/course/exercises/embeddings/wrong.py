"""Wrong answers to exercise 14."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.course.checking import Mistake, combined
from clearhead.course.exercises.embeddings import checks
from clearhead.course.exercises.embeddings.solution import TiedTable


def _build(
    factor: Callable[[int], float] = math.sqrt, scored: Callable[[int], float] = lambda d: 1.0
) -> type[TiedTable]:
    """The reference with other factors."""

    class Wrong(TiedTable):
        def embed(self, tokens: Tensor) -> Tensor:
            return self.table[tokens] * factor(self.table.shape[1])

        def score(self, x: Tensor) -> Tensor:
            return x @ self.table.T * scored(self.table.shape[1])

    return Wrong


class _TwoTables(TiedTable):
    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        self.scores = nn.Parameter(0.02 * torch.randn(vocab_size, d_model))

    def score(self, x: Tensor) -> Tensor:
        return x @ self.scores.T


class _Copied(_TwoTables):
    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        self.scores = nn.Parameter(self.table.detach().clone())


class _Wide(TiedTable):
    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        self.table = nn.Parameter(torch.randn(vocab_size, d_model))


class _NotTrained(TiedTable):
    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        numbers = self.table.detach()
        del self.table
        self.register_buffer("table", numbers)


def _two_of_them(kind: Any, alike: bool) -> bool:
    """Two tables of one size, which begin alike or not."""
    parameters = list(kind(11, 4).parameters())
    if len(parameters) != 2 or checks.n_numbers(kind) != 88:
        return False
    one, two = (p.detach() for p in parameters)
    return (one.shape == two.shape and torch.equal(one, two)) is alike


def _spread(kind: Any) -> float:
    return torch.cat([p.flatten() for p in kind(400, 50).parameters()]).std().item()


def _initialise(
    narrow: tuple[str, ...] = ("output.weight", "down.weight"),
    divisor: Callable[[int], float] = lambda n: math.sqrt(2 * n),
    power: int = 1,
    bias: str = "zero",
    norm: str = "one",
) -> Callable[[nn.Module, float, int], None]:
    """The rules, with one or two of them wrong."""

    def initialise(model: nn.Module, std: float, n_layers: int) -> None:
        std = std**power
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                scale = divisor(n_layers) if name.endswith(narrow) else 1.0
                nn.init.normal_(parameter, std=std / scale)
            elif name.endswith("bias"):
                nn.init.normal_(parameter, std=0.0 if bias == "zero" else std)
            else:
                values = {"one": (1.0, 0.0), "zero": (0.0, 0.0), "drawn": (0.0, std)}[norm]
                nn.init.normal_(parameter, *values)

    return initialise


WRONG_FACTORS: dict[str, dict[str, Any]] = {
    "factor": {
        "no √d_model": lambda d: 1.0,
        "divided by √d_model": lambda d: 1 / math.sqrt(d),
        "times d_model": float,
    },
    "scored": {"logits times √d_model": math.sqrt, "logits over √d_model": lambda d: d**-0.5},
}
WRONG_RULES: dict[str, dict[str, Any]] = {
    "narrow": {
        "down forgotten": ("output.weight",),
        "output forgotten": ("down.weight",),
        "no narrow matrices": (),
        "all matrices narrow": ("weight",),
    },
    "divisor": {
        "√N instead of √(2N)": math.sqrt,
        "divided by 2N": lambda n: 2 * n,
    },
    "power": {"std squared": 2},
    "bias": {"biases drawn": "drawn"},
    "norm": {"norms begin at 0": "zero", "norms drawn": "drawn"},
}
TABLE = "TiedTable"
MISTAKES = [
    *combined(TABLE, _build, WRONG_FACTORS),
    Mistake("two tables", TABLE, _TwoTables, fits=lambda kind: _two_of_them(kind, False)),
    Mistake("tied by copying", TABLE, _Copied, fits=lambda kind: _two_of_them(kind, True)),
    Mistake("table from N(0, 1)", TABLE, _Wide, fits=lambda kind: 0.9 < _spread(kind) < 1.1),
    Mistake("no parameter", TABLE, _NotTrained, fits=lambda kind: checks.n_numbers(kind) == 0),
    Mistake(
        "parameters left",
        "initialise",
        lambda model, std, n_layers: None,
        fits=lambda initialise: bool(checks.parameters_left(initialise)),
    ),
    # One at a time: what is drawn at random tells two of them apart too seldom.
    *(each for each in combined("initialise", _initialise, WRONG_RULES) if not each.second),
]
