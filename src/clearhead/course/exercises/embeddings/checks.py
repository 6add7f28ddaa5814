"""Checks of exercise 14. They read the answer's parameters, whatever their names are, and what it
computes with a table of known numbers."""

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.course.checking import Checks, FunctionProbe, Learned, close, distance, require

CHECKS = Checks()
STD, N_LAYERS = 0.2, 6


class _Layer(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.query, self.output = nn.Linear(d, d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.norm = nn.LayerNorm(d)
        for parameter in self.parameters():  # what was there before must not stay
            nn.init.constant_(parameter, 3.0)


def _model(d: int = 64) -> nn.Module:
    model = nn.Module()
    model.tokens = nn.Embedding(100, d)
    model.layers = nn.ModuleList(_Layer(d) for _ in range(2))
    return model


def known_table(kind: Any, vocab_size: int, d_model: int) -> tuple[Any, Tensor]:
    """Return an answer and the known numbers that its table holds."""
    answer, rows = kind(vocab_size, d_model), torch.randn(vocab_size, d_model)
    with torch.no_grad():
        for parameter in answer.parameters():
            parameter.copy_(rows.T if parameter.shape == rows.T.shape else rows)
    return answer, rows


def n_numbers(kind: Any) -> int:
    """Return how many numbers the answer trains, for a vocabulary of 11 and a width of 4."""
    return sum(p.numel() for p in kind(11, 4).parameters())


def kinds_of_weights(initialise: Any) -> dict[str, float]:
    """Return the standard deviation of each kind of matrix in units of std, and for biases and the
    weights of norms the largest distance from the right value, in the same units."""
    model = _model()
    initialise(model, STD, N_LAYERS)
    found: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        kind = ".".join(name.split(".")[-2:])
        found.setdefault("bias" if kind.endswith("bias") else kind, []).append(parameter.detach())
    spread = {kind: torch.cat([p.flatten() for p in each]) for kind, each in found.items()}
    return {kind: _one_number(kind, p) / STD for kind, p in spread.items()}


def _one_number(kind: str, numbers: Tensor) -> float:
    if kind == "bias":
        return numbers.abs().max().item()
    if kind == "norm.weight":
        return (numbers - 1).abs().max().item()
    return (numbers.std() + numbers.mean().abs()).item()


def parameters_left(initialise: Any) -> list[str]:
    """Return the names of the parameters that the answer leaves as they were. One parameter, a
    table of positions, belongs to the model itself."""
    model = _model(8)
    model.positions = nn.Parameter(torch.zeros(5, 8))
    for parameter in model.parameters():
        nn.init.constant_(parameter, 3.0)
    initialise(model, STD, N_LAYERS)
    return [name for name, parameter in model.named_parameters() if bool((parameter == 3.0).any())]


def _probe_table(kind: Any) -> object:
    answer, _ = known_table(kind, 9, 6)
    return [answer.embed(torch.tensor([[1, 8], [3, 3]])), answer.score(torch.randn(2, 3, 6))]


def _probe_initialise(f: Any) -> object:
    return [round(x, 1) for x in kinds_of_weights(f).values()]


PROBES: dict[str, FunctionProbe] = {
    "TiedTable": _probe_table,
    "initialise": _probe_initialise,
}


@CHECKS.about("TiedTable")
def shapes(it: Learned) -> None:
    """The shapes of vectors and logits are right."""
    answer = it["TiedTable"](11, 4)
    vectors = answer.embed(torch.tensor([[1, 10, 0]]))
    found = tuple(vectors.shape), tuple(answer.score(vectors).shape)
    require(found == ((1, 3, 4), (1, 3, 11)), found=found)


@CHECKS.about("TiedTable")
def one_table(it: Learned) -> None:
    """The answer trains as many numbers as one table has."""
    found = n_numbers(it["TiedTable"])
    require(found == 44, found=found)


@CHECKS.about("TiedTable")
def narrow(it: Learned) -> None:
    """The standard deviation of the table is 0.02."""
    numbers = torch.cat([p.flatten() for p in it["TiedTable"](400, 50).parameters()])
    found, mean = numbers.std().item(), numbers.mean().item()
    require(abs(found - 0.02) < 0.001 and abs(mean) < 0.001, found=f"{found:.3f}")


@CHECKS.about("TiedTable")
def times_root_d(it: Learned) -> None:
    """A token's vector is its row, times √d_model."""
    for d_model in (4, 9, 50):
        answer, rows = known_table(it["TiedTable"], 11, d_model)
        tokens = torch.tensor([[7, 0, 10], [2, 7, 7]])
        wanted = F.embedding(tokens, rows) * math.sqrt(d_model)
        found = answer.embed(tokens)
        factor = (found.norm() / F.embedding(tokens, rows).norm()).item()
        require(close(found, wanted, 1e-4), d=d_model, factor=f"{factor:.2f}",
                root=f"{math.sqrt(d_model):.2f}")  # fmt: skip


@CHECKS.about("TiedTable")
def scores(it: Learned) -> None:
    """The logit of a token is the product of x with the token's row."""
    answer, rows = known_table(it["TiedTable"], 11, 6)
    x = torch.randn(2, 3, 6)
    change = distance(answer.score(x), torch.einsum("bnd,vd->bnv", x, rows))
    require(change < 1e-4, change=f"{change:.2g}")


@CHECKS.about("TiedTable")
def still_one_after_a_copy(it: Learned) -> None:
    """In a copy of the model, a change of one row changes vectors and logits."""
    answer = copy.deepcopy(it["TiedTable"](11, 6))
    (table,) = answer.parameters()
    before = answer.embed(torch.tensor([[5]])), answer.score(torch.ones(1, 1, 6))
    with torch.no_grad():
        (table if table.shape == (11, 6) else table.T)[5] += 1.0
    after = answer.embed(torch.tensor([[5]])), answer.score(torch.ones(1, 1, 6))
    moved = [distance(a, b) > 0.1 for a, b in zip(after, before)]
    require(all(moved), embeds=moved[0], scores=moved[1])


@CHECKS.about("TiedTable")
def both_train_it(it: Learned) -> None:
    """The gradient of the table is the sum over its two uses, embedding and scoring."""
    answer, rows = known_table(it["TiedTable"], 11, 6)
    tokens, shares = torch.tensor([[3, 4, 3]]), torch.randn(1, 3, 11)
    (answer.score(answer.embed(tokens)) * shares).sum().backward()
    (table,) = answer.parameters()
    rows = rows.clone().requires_grad_()
    vectors = F.embedding(tokens, rows) * math.sqrt(6)
    (torch.einsum("bnd,vd->bnv", vectors, rows) * shares).sum().backward()
    found = torch.zeros_like(table) if table.grad is None else table.grad
    found = found if found.shape == rows.shape else found.T
    assert rows.grad is not None
    change = distance(found, rows.grad)
    require(change < 1e-3, change=f"{change:.2g}")


@CHECKS.about("TiedTable")
def first_loss(it: Learned) -> None:
    """The first loss, computed through a norm, is about ln V."""
    torch.manual_seed(3)
    answer, tokens = it["TiedTable"](1000, 64), torch.randint(1000, (4, 65))
    x = F.layer_norm(answer.embed(tokens[:, :-1]), (64,))
    loss = F.cross_entropy(answer.score(x).flatten(0, 1), tokens[:, 1:].flatten()).item()
    require(abs(loss - math.log(1000)) < 0.3, found=f"{loss:.1f}")


def _near(found: float, wanted: float) -> bool:
    return abs(found - wanted) < 0.06 * max(wanted, 0.1)


@CHECKS.about("initialise")
def matrices(it: Learned) -> None:
    """The standard deviation of query, up and the table is std."""
    found = kinds_of_weights(it["initialise"])
    for kind in ("query.weight", "up.weight", "tokens.weight"):
        require(_near(found[kind], 1.0), kind=kind, found=f"{found[kind]:.3f}")


@CHECKS.about("initialise")
def writes_into_the_stream(it: Learned) -> None:
    """The standard deviation of output and down is std / √(2N)."""
    found, wanted = kinds_of_weights(it["initialise"]), 1 / math.sqrt(2 * N_LAYERS)
    for kind in ("output.weight", "down.weight"):
        require(_near(found[kind], wanted), kind=kind, found=f"{found[kind]:.3f}",
                wanted=f"{wanted:.3f}")  # fmt: skip


@CHECKS.about("initialise")
def biases(it: Learned) -> None:
    """Biases are 0."""
    found = kinds_of_weights(it["initialise"])["bias"] * STD
    require(found == 0, found=f"{found:.3g}")


@CHECKS.about("initialise")
def norms(it: Learned) -> None:
    """The weights of norms are 1."""
    found = kinds_of_weights(it["initialise"])["norm.weight"] * STD
    require(found == 0, found=f"{found:.3g}")


@CHECKS.about("initialise")
def in_place(it: Learned) -> None:
    """The parameters remain the same objects, and can still be trained."""
    model = _model(8)
    before = [id(p) for p in model.parameters()]
    it["initialise"](model, 0.02, 2)
    same = [id(p) for p in model.parameters()] == before
    require(same and all(p.requires_grad and p.is_leaf for p in model.parameters()))


@CHECKS.about("initialise")
def drawn(it: Learned) -> None:
    """The numbers are normally distributed, and differ between matrices."""
    model = _model()
    it["initialise"](model, STD, N_LAYERS)
    one, two = (layer.query.weight.detach() for layer in model.layers)  # type: ignore[union-attr]
    far = max((p.abs() > 2 * STD).float().mean().item() for p in (one, two))
    require(not close(one, two, 1e-3) and 0.03 < far < 0.06, far=f"{far:.1%}")


@CHECKS.about("initialise")
def every_parameter(it: Learned) -> None:
    """Every parameter is set, even one that belongs to no Linear, Embedding or norm."""
    left = parameters_left(it["initialise"])
    require(not left, left=", ".join(left))
