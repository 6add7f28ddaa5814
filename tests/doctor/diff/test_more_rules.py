"""Further rules by which a line is blamed, or a cause is named, on small ports that need them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.doctor.diff import diff
from tests.doctor.diff.small import BASE, D_HEAD, LENGTH, WIDTH, WORDS, Small, tokens
from tests.doctor.diff.test_rules import departures, only, says


class Damped(Small):
    """The branch is multiplied where it is added."""

    def layer(self, x: Tensor) -> Tensor:
        x = x + self.attended(self.normed(x, self.norm))
        branch = self.outer(F.gelu(self.inner(self.normed(x, self.second))))
        return x + 0.3 * branch


class Undamped(Small):
    def layer(self, x: Tensor) -> Tensor:
        x = x + self.attended(self.normed(x, self.norm))
        branch = self.outer(F.gelu(self.inner(self.normed(x, self.second))))
        return x + branch


def test_a_factor_is_missing_where_the_reference_multiplies():
    says(only(Undamped(), Damped()), "missing_factor", "return x + branch")


class Dropped(Small):
    def attended(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        scores = self.rotated(q) @ self.rotated(k).mT / D_HEAD**0.5
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        weights = scores.softmax(-1)
        weights = F.dropout(weights, 0.2)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def test_what_is_applied_to_a_tensor_that_the_reference_leaves_is_superfluous():
    says(only(Dropped()), "superfluous_function", "F.dropout(weights, 0.2)")


class Stack(nn.Module):
    """Two layers of the same shape."""

    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.words, self.layers = nn.Embedding(WORDS, WIDTH), layers
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def test_one_object_for_all_layers_is_blamed_where_it_is_repeated():
    torch.manual_seed(1)
    reference = Stack(nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2)))
    port = Stack(nn.ModuleList([nn.Linear(WIDTH, WIDTH)] * 2))
    port.load_state_dict(reference.state_dict())
    found = diff(reference, port, tokens(), steps=False).departures
    assert len(found) == 1 and found[0].line is not None
    assert found[0].cause is not None and found[0].cause.kind == "weights"


class Waves(nn.Module):
    """Sines in the first half of a table, cosines in the second."""

    def __init__(self, base: float) -> None:
        super().__init__()
        torch.manual_seed(1)
        rates = base ** -(torch.arange(0, WIDTH, 2) / WIDTH)
        angles = torch.outer(torch.arange(LENGTH).float(), rates)
        table = torch.cat([angles.sin(), angles.cos()], dim=-1)
        self.register_buffer("table", table, persistent=False)
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        x = x + self.table
        return self.head(x.tanh())


def test_the_base_of_a_table_of_sinusoids_is_named():
    (found,) = diff(Waves(BASE), Waves(100.0), tokens(), steps=False).departures
    says(found, "base", "Waves(100.0)")  # the one line that holds the number
    assert found.cause is not None and round(found.cause.facts["port"]) == 100


def test_a_table_that_is_kept_in_few_bits_is_named():
    port = Waves(BASE)
    port.table = port.table.bfloat16()
    (found,) = diff(Waves(BASE), port, tokens(), steps=False).departures
    says(found, "precision", "x + self.table")
    assert found.cause is not None and found.cause.facts["dtype"] == "bfloat16"


class Experts(Small):
    """Two matrices, of which each token takes one or both, by weights that sum to one."""

    def weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        best, chosen = (x @ self.words.weight[:3].T).topk(2, dim=-1)
        return best.softmax(dim=-1), chosen

    def matrices(self) -> list[Tensor]:
        return [self.q.weight.T, self.k.weight.T, self.v.weight.T]

    def layer(self, x: Tensor) -> Tensor:
        weights, chosen = self.weights(x)
        shares = torch.zeros(*x.shape[:-1], 3, dtype=x.dtype).scatter(-1, chosen, weights)
        every = torch.stack([x @ matrix for matrix in self.matrices()], dim=-2)
        return x + (shares.unsqueeze(-1) * every).sum(-2)


class Sparse(Experts):
    """Each matrix takes its tokens only."""

    def layer(self, x: Tensor) -> Tensor:
        weights, chosen = self.weights(x)
        out = torch.zeros_like(x)
        for n, matrix in enumerate(self.matrices()):
            *rows, slots = torch.where(chosen == n)
            out[tuple(rows)] += weights[*rows, slots, None] * (x[tuple(rows)] @ matrix)
        return x + out


class FirstOnly(Experts):
    def layer(self, x: Tensor) -> Tensor:
        weights, chosen = self.weights(x)
        out = torch.zeros_like(x)
        for n, matrix in enumerate(self.matrices()):
            *rows, _ = torch.where(chosen == n)
            out[tuple(rows)] += weights[*rows, 0, None] * (x[tuple(rows)] @ matrix)
        return x + out


def test_a_line_that_only_counts_rows_is_not_blamed():
    assert diff(Experts(), Sparse(), tokens(), steps=False).same
    assert any(
        d.line is not None and "weights[*rows, 0, None]" in d.line.text
        for d in departures(FirstOnly(), Experts())
    )


class ByName(nn.Module):
    """One line multiplies by all matrices, which it is given by their names."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.words = nn.Embedding(WORDS, WIDTH)
        for name in ("inner0", "outer0", "inner1", "outer1"):
            self.register_parameter(name, nn.Parameter(torch.randn(WIDTH, WIDTH) / 4))

    def times(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.get_parameter(name))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for n in range(2):
            y = self.times(f"inner{n}", x).tanh()
            x = x + self.times(f"outer{n}", y)
        return x


class FirstName(ByName):
    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for n in range(2):
            y = self.times("inner0", x).tanh()
            x = x + self.times(f"outer{n}", y)
        return x


def test_the_caller_is_blamed_also_where_it_is_right_in_another_layer():
    (found,) = diff(ByName(), FirstName(), tokens(), steps=False).departures
    says(found, "tensor", 'self.times("inner0", x)')
