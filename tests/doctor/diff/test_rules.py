"""Each rule by which a line is blamed, or a cause is named, on a small port that needs it."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.doctor.diff import Departure, diff
from tests.doctor.diff.small import BASE, D_HEAD, LENGTH, WIDTH, WORDS, Small, tokens


def departures(port: Small, reference: Small | None = None) -> list[Departure]:
    reference = reference or Small()
    report = diff(reference, port, tokens(), steps=False)
    assert not report.same
    return report.departures


def only(port: Small, reference: Small | None = None) -> Departure:
    found = departures(port, reference)
    assert len({departure.line for departure in found}) == 1, found
    return found[0]


def says(departure: Departure, cause: str | None, text: str) -> None:
    assert departure.line is not None and text in departure.line.text, departure
    assert (None if departure.cause is None else departure.cause.kind) == cause, departure


class Folded(Small):
    """Two tables are added to one, which single precision rounds."""

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.places.weight += self.segment

    def embedded(self, tokens: Tensor) -> Tensor:
        return self.words(tokens) + self.places(torch.arange(tokens.shape[1]))


class FoldedTanh(Folded):
    def layer(self, x: Tensor) -> Tensor:
        x = x + self.attended(self.normed(x, self.norm))
        h = F.gelu(self.inner(self.normed(x, self.second)), approximate="tanh")
        return x + self.outer(h)


def test_a_table_that_is_folded_and_rounded_is_not_blamed():
    assert diff(Small(), Folded(), tokens(), steps=False).departures == []
    says(only(FoldedTanh()), "function", 'approximate="tanh"')


class NoSegment(Small):
    def embedded(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        return x + self.places(torch.arange(tokens.shape[1]))


def test_a_summand_is_missing_where_the_others_are_added():
    found = only(NoSegment())
    assert found.cause is not None and found.cause.kind in ("missing_term", "missing_bias")
    assert found.line is not None and "x + self.places" in found.line.text


class Sine(Small):
    def attended(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        scores = self.rotated(q) @ self.rotated(torch.sin(2 * k)).mT / D_HEAD**0.5
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_where_no_experiment_fits_no_cause_is_named():
    says(departures(Sine())[0], None, "torch.sin(2 * k)")


class Unrotated(Small):
    def attended(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        scores = self.rotated(q) @ k.mT / D_HEAD**0.5
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_keys_that_are_not_rotated_are_named():
    says(only(Unrotated()), "missing_rotation", "self.rotated(q) @ k.mT")


class Uncapped(Small):
    def attended(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        scores = self.rotated(q) @ self.rotated(k).mT / D_HEAD**0.5
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_a_missing_softcap_is_a_missing_function():
    found = only(Uncapped())
    says(found, "missing_function", "self.rotated(k).mT / D_HEAD**0.5")
    assert found.cause is not None and found.cause.facts["name"] == "softcap (3)"


class OtherNorm(Small):
    def layer(self, x: Tensor) -> Tensor:
        x = x + self.attended(self.normed(x, self.norm))
        return x + self.outer(F.gelu(self.inner(self.normed(x, self.norm))))


def test_a_line_that_is_right_elsewhere_is_not_blamed_but_its_caller():
    found = only(OtherNorm())
    says(found, "tensor", "self.inner(self.normed(x, self.norm))")


class Window(Small):
    def allowed(self, length: int) -> Tensor:
        places = torch.arange(length)
        distance = places[:, None] - places[None, :]
        window = distance <= 4
        return window & (distance >= 0)


def test_a_window_that_is_one_too_wide_is_found_where_it_is_compared():
    says(only(Window()), "mask", "distance <= 4")


class Complex(Small):
    """Cosines and sines as complex numbers, made when the model is."""

    base = BASE

    def __init__(self) -> None:
        super().__init__()
        rates = self.base ** -(torch.arange(0, D_HEAD, 2).float() / D_HEAD)
        angles = torch.outer(torch.arange(LENGTH).float(), rates)
        self.table = torch.polar(torch.ones_like(angles), angles)
        order = torch.arange(WIDTH).reshape(-1, 2, D_HEAD // 2).transpose(1, 2).flatten()
        if type(self) is not Halves:
            with torch.no_grad():
                for layer in (self.q, self.k):
                    layer.weight.copy_(layer.weight[order])
                    layer.bias.copy_(layer.bias[order])

    def rotated(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * self.table).flatten(-2)


class OtherBase(Complex):
    base = 500.0


class Halves(Complex):
    """Its weights are still in the order of halves."""


class ComplexTanh(Complex):
    def layer(self, x: Tensor) -> Tensor:
        return FoldedTanh.layer(self, x)  # pyright: ignore[reportArgumentType]


def test_a_rotation_by_complex_numbers_is_not_blamed():
    assert diff(Small(), Complex(), tokens(), steps=False).departures == []
    says(only(ComplexTanh()), "function", 'approximate="tanh"')


def test_the_base_of_a_rotation_by_complex_numbers_is_named():
    says(only(OtherBase()), "base", "base = 500.0")


def test_weights_for_halves_in_a_rotation_of_pairs_are_named():
    found = departures(Halves())
    assert {d.cause.kind for d in found if d.cause is not None} == {"rotary_layout"}


class Written(Small):
    """A table that is written column by column."""

    first = 0

    def embedded(self, tokens: Tensor) -> Tensor:
        counted = torch.arange(self.first, self.first + tokens.shape[1])[:, None]
        table = torch.zeros(tokens.shape[1], WIDTH)
        table[:, 0::2] = torch.sin(counted / 7)
        table[:, 1::2] = torch.cos(counted / 7)
        return self.words(tokens) + table


class FromOne(Written):
    first = 1


def test_positions_in_a_written_table_are_found_where_they_are_counted():
    says(only(FromOne(), Written()), "positions", "torch.arange(self.first")


class NoLast(Small):
    def forward(self, tokens: Tensor) -> Tensor:
        x = self.layer(self.embedded(tokens))
        memory = x
        return self.head(memory)


def test_a_norm_is_missing_where_a_tensor_is_only_passed_on():
    says(only(NoLast()), "missing_norm", "memory = x")


class Distances(Small):
    """Learnt biases of distances, beside the scores."""

    def biases(self, length: int) -> Tensor:
        places = torch.arange(length)
        distance = places[None, :] - places[:, None]
        return self.places.weight.flatten()[distance + length]

    def attended(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        scores = q @ k.mT + self.biases(x.shape[1])
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Turned(Distances):
    def biases(self, length: int) -> Tensor:
        places = torch.arange(length)
        distance = places[:, None] - places[None, :]
        return self.places.weight.flatten()[distance + length]


def test_distances_the_other_way_round_are_found_where_they_are_made():
    says(only(Turned(), Distances()), "order", "places[:, None] - places[None, :]")


class Fused(Small):
    """One matrix for queries, keys and values; its bias is forgotten."""

    def attended(self, x: Tensor) -> Tensor:
        weight = torch.cat([self.q.weight, self.k.weight, self.v.weight])
        fused = F.linear(x, weight)
        q, k, v = (self.heads(part) for part in fused.chunk(3, dim=-1))
        scores = self.rotated(q) @ self.rotated(k).mT / D_HEAD**0.5
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_a_bias_is_missing_where_the_whole_is_made_and_not_its_parts():
    for found in departures(Fused()):
        says(found, "missing_bias", "fused = F.linear(x, weight)")


class Plain(Small):
    """The weight of a norm without its one."""

    def normed(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        return F.layer_norm(x, (WIDTH,)) * norm.weight


class OnePlus(Small):
    def normed(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        return F.layer_norm(x, (WIDTH,)) * (1 + norm.weight)


def test_a_weight_that_lacks_its_one_is_not_called_another_weight():
    says(only(Plain(), OnePlus()), "shift", "* norm.weight")


class TwoBugs(Small):
    def attended(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        scores = self.rotated(q) @ k.mT / D_HEAD**0.5
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def layer(self, x: Tensor) -> Tensor:
        h = x + self.attended(self.normed(x, self.norm))
        return x + self.outer(F.gelu(self.inner(self.normed(h, self.second))))


def test_a_wrong_residual_is_found_behind_unrotated_keys():
    first, second = departures(TwoBugs())
    says(first, "missing_rotation", "self.rotated(q) @ k.mT")
    says(second, "tensor", "return x + self.outer")


class Parallel(Small):
    """Both sublayers read the same tensor."""

    def layer(self, x: Tensor) -> Tensor:
        h = self.normed(x, self.norm)
        return self.outer(F.gelu(self.inner(h))) + self.attended(h) + x


class Unbiased(Small):
    """The sum in another order, and a bias that is forgotten."""

    def attended(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        scores = self.rotated(q) @ self.rotated(k).mT / D_HEAD**0.5
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        merged = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return merged @ self.out.weight.t()

    def layer(self, x: Tensor) -> Tensor:
        h = self.normed(x, self.norm)
        return x + self.attended(h) + self.outer(F.gelu(self.inner(h)))


def test_a_sum_in_another_order_is_not_blamed():
    says(only(Unbiased(), Parallel()), "missing_bias", "merged @ self.out.weight.t()")


class Unturned(Small):
    def rotated(self, x: Tensor) -> Tensor:
        return x


class Swapped(Unturned):
    """Queries and keys by each other's name: the scores are turned round."""

    def attended(self, x: Tensor) -> Tensor:
        layers = (self.q, self.k, self.v)
        weight, bias = (torch.cat(t) for t in zip(*(layer.parameters() for layer in layers)))
        fused = F.linear(x, weight, bias)
        k, q, v = fused.chunk(3, dim=-1)
        scores = self.rotated(self.heads(q)) @ self.rotated(self.heads(k)).mT / D_HEAD**0.5
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        return self.out((scores.softmax(-1) @ self.heads(v)).transpose(1, 2).flatten(2))


def test_queries_and_keys_that_are_swapped_are_found_where_they_are_named():
    for found in departures(Swapped(), Unturned()):
        says(found, "tensor", "k, q, v = fused.chunk")


class Capped(Small):
    def forward(self, tokens: Tensor) -> Tensor:
        logits = super().forward(tokens)
        return 5 * torch.tanh(logits / 5)


class NotCapped(Small):
    def forward(self, tokens: Tensor) -> Tensor:
        x = self.layer(self.embedded(tokens))
        logits = self.head(self.normed(x, self.last))
        return logits


def test_a_function_that_is_missing_behind_the_logits_is_missing_where_they_are_returned():
    says(only(NotCapped(), Capped()), "missing_function", "return logits")


class Along(Small):
    """A softmax over the queries, without the mask that would show it."""

    axis = -1

    def attended(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        weights = (q @ k.mT).softmax(dim=self.axis)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class AlongQueries(Along):
    axis = -2


def test_a_softmax_over_the_queries_is_not_called_an_order():
    says(only(AlongQueries(), Along()), "axis", "softmax(dim=self.axis)")


class Bare(nn.Module):
    """Its words are a matrix, and its only nn.Embedding is that of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.randn(WORDS, WIDTH))
        self.places = nn.Embedding(30, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words[tokens] + self.places(torch.arange(tokens.shape[1]))
        return x.cumsum(dim=1) @ self.words.t()


def test_the_words_that_one_model_does_not_count_are_counted_by_the_other():
    reference, port = Bare(), Bare()
    reference.vocab_size = WORDS  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    port.load_state_dict(reference.state_dict())
    assert diff(reference, port, kind="decoder", steps=False).same


@pytest.mark.parametrize("size", [(8, 5, 16), (10, 16)])
def test_heads_of_a_batch_are_found_in_every_layout(size: tuple[int, ...]):
    from clearhead.doctor.diff.layouts import aligned

    heads = torch.randn(2, 4, 5, 16 if len(size) == 3 else 4)
    merged = heads.transpose(1, 2).flatten(2)
    value = heads.reshape(size) if len(size) == 3 else merged.reshape(size)
    found = aligned(merged if len(size) == 3 else heads, value, 1e-9)
    assert found is not None
