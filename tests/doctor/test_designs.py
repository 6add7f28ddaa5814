"""Designs of published models that are unusual and healthy, each in a look-alike of our own: the
check that once took it for a bug leaves it in peace, and still names the bug beside it."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.doctor import examine

VOCABULARY, WIDTH, HEADS, LIMIT, PAD = 37, 16, 2, 24, 0


def split(x: Tensor, heads: int = HEADS) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def turn(x: Tensor) -> Tensor:
    """Rotates pairs of channels by an angle that grows with the position."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10.0 ** -torch.arange(half)
    sine, cosine = angle.sin().to(x), angle.cos().to(x)
    one, other = x[..., :half], x[..., half:]
    return torch.cat((one * cosine - other * sine, one * sine + other * cosine), -1)


class Attend(nn.Module):
    """Attention with a rotation; what subclasses change is one step of it."""

    rotary = True

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def queries_and_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k = split(self.q(x)), split(self.k(x))
        return (turn(q), turn(k)) if self.rotary else (q, k)

    def values(self, x: Tensor) -> Tensor:
        return split(self.v(x))

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        future = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
        return (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(future, -1e9)

    def weights(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def forward(self, x):
        weights = self.weights(self.scores(*self.queries_and_keys(x)))
        return self.o((weights @ self.values(x)).transpose(1, 2).flatten(2)), weights


class Sink(Attend):
    """A further column that takes a share of the weights and stands for no key."""

    def __init__(self):
        super().__init__()
        self.sink = nn.Parameter(torch.zeros(HEADS))

    def weights(self, scores):
        sink = self.sink[:, None, None].expand(len(scores), -1, scores.shape[-2], 1)
        return torch.cat((scores, sink), -1).softmax(-1)[..., :-1]


class Halved(Attend):
    """Weights that lose a share after the softmax."""

    def weights(self, scores):
        return scores.softmax(-1) / 2


class SinkBySize(Attend):
    """The same share, from the sum of the scores' exponentials."""

    def __init__(self):
        super().__init__()
        self.sink = nn.Parameter(torch.zeros(HEADS))

    def weights(self, scores):
        share = (scores.logsumexp(-1) - self.sink[:, None]).sigmoid()
        return scores.softmax(-1) * share[..., None]


class Merged(Attend):
    """Heads are merged in the wrong order."""

    def forward(self, x):
        weights = self.weights(self.scores(*self.queries_and_keys(x)))
        return self.o((weights @ self.values(x)).reshape(x.shape)), weights


class Convolved(Attend):
    """A short convolution over the keys and values of the last three positions."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv1d(WIDTH, WIDTH, 3, groups=WIDTH)

    def values(self, x):
        return split(self.mix(F.pad(self.v(x).mT, (2, 0))).mT)


class LinearAttention(Attend):
    """Sums of values by the products of positive queries and keys, without a softmax."""

    def forward(self, x):
        q, k = (t.exp() for t in self.queries_and_keys(x))
        read = (q @ k.mT).tril() @ self.values(x)
        return self.o(read.transpose(1, 2).flatten(2)), None


class TurnedValues(Attend):
    def values(self, x):
        return turn(split(self.v(x)))


class Normed(Attend):
    """Queries and keys are normalised, and their norms' weights are the scale."""

    def __init__(self, norms=True):
        super().__init__()
        self.norm_q, self.norm_k = (
            nn.RMSNorm(WIDTH // HEADS) if norms else nn.Identity() for _ in range(2)
        )

    def queries_and_keys(self, x):
        return turn(self.norm_q(split(self.q(x)))), turn(self.norm_k(split(self.k(x))))

    def scores(self, q, k):
        return super().scores(q, k) * q.shape[-1] ** 0.5


class Differential(Attend):
    """One pair of queries and keys reads two groups of values; or, a bug, one of them only."""

    def __init__(self, both=True):
        super().__init__()
        self.both, self.q = both, nn.Linear(WIDTH, 2 * WIDTH)
        self.o = nn.Linear(4 * WIDTH if both else 2 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = split(self.q(x), 4), split(self.k(x)), split(self.v(x))
        k = k.repeat_interleave(2, dim=1)
        first, second = v.repeat(1, 2, 1, 1), v.flip(1).repeat(1, 2, 1, 1)
        read = [
            self.weights(self.scores(turn(q), turn(k))) @ values
            for values in ((first, second) if self.both else (first,))
        ]
        return self.o(torch.cat(read, -1).transpose(1, 2).flatten(2)), None


class Placeless(Attend):
    rotary = False


class TwoStreams(Placeless):
    """The second half of the vectors looks at the first half, and each of it at itself."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        places = torch.arange(q.shape[-2]) % (q.shape[-2] // 2)
        of_tokens = torch.arange(q.shape[-2]) < q.shape[-2] // 2
        allowed = (places[:, None] >= places) & of_tokens | torch.eye(q.shape[-2], dtype=torch.bool)
        return (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~allowed, -1e9)


class Layer(nn.Module):
    def __init__(self, attend: nn.Module, residual="both"):
        super().__init__()
        self.attend, self.residual = attend, residual
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def forward(self, x):
        y, weights = self.attend(self.norm_1(x))
        h = y if self.residual == "none" else x + y
        y = self.feed(self.norm_2(h))
        return {"both": h + y, "none": y, "skips": x + y}[self.residual], weights


class Gained(Layer):
    """The residual is weighed by a gain of its own."""

    def __init__(self, attend: nn.Module):
        super().__init__(attend)
        self.gain = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        y, weights = self.attend(self.norm_1(x))
        x = self.gain * x + y
        return self.gain * x + self.feed(self.norm_2(x)), weights


class Recurrence(nn.Module):
    """A running mean in place of attention, inside a gate: no feed-forward layer follows."""

    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        value, gate = self.into(x).chunk(2, dim=-1)
        counts = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        return self.out(value.cumsum(1) / counts * F.silu(gate))


class Running(Recurrence):
    """In the place of attention, before a feed-forward layer: a sum that grows with the place."""

    def forward(self, x):
        value, gate = self.into(x).chunk(2, dim=-1)
        return self.out(value.cumsum(1) * F.silu(gate)), None


class Routed(nn.Linear):
    """A router that narrows, and returns more than its scores; the experts are bare weights."""

    def __init__(self):
        super().__init__(WIDTH, 2)
        self.experts = nn.Parameter(torch.randn(2, WIDTH, WIDTH) / 4)

    def forward(self, x):
        scores = super().forward(x)
        return scores, scores.softmax(-1)


class RoutedLayer(Layer):
    def __init__(self, attend: nn.Module):
        super().__init__(attend)
        self.feed = Routed()

    def forward(self, x):
        y, weights = self.attend(self.norm_1(x))
        x = x + y
        _, shares = self.feed(self.norm_2(x))
        read = torch.einsum("btd,edf->btef", self.norm_2(x), self.feed.experts)
        return x + (shares[..., None] * read).sum(2), weights


class RecurrentLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mixer = nn.LayerNorm(WIDTH), Recurrence()

    def forward(self, x):
        return x + self.mixer(self.norm(x)), None


class OneFeedForward(Layer):
    """A second stream runs through the same feed-forward layer and its norm; or, a bug, one norm
    is before both attention and that layer."""

    def __init__(self, attend: nn.Module, one_norm=False):
        super().__init__(attend)
        self.one_norm = one_norm

    def forward(self, x):
        y, weights = self.attend((self.norm_2 if self.one_norm else self.norm_1)(x))
        x = x + y
        out = x + self.feed(self.norm_2(x))
        if not self.one_norm:
            out = out + self.feed(self.norm_2(F.pad(x, (0, 0, 1, 0))[:, :-1]))
        return out, weights


class Choosing(nn.Module):
    """Two experts, weighed together where their scores are near each other; or, a bug, never."""

    def __init__(self, near: float):
        super().__init__()
        self.near, self.router = near, nn.Linear(WIDTH, 2, bias=False)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x):
        scores = self.router(x)
        far = scores.amax(-1, keepdim=True) - scores > self.near
        shares = scores.masked_fill(far, float("-inf")).softmax(-1)
        return sum(shares[..., i : i + 1] * e(x).relu() for i, e in enumerate(self.experts))


class ChoosingLayer(Layer):
    def __init__(self, near: float):
        super().__init__(Attend())
        self.feed = Choosing(near)


class Decoder(nn.Module):
    def __init__(self, *layers: nn.Module, padding_idx: int | None = None, rows=LIMIT):
        super().__init__()
        self.pad_id, self.max_len = PAD, LIMIT
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = None
        if padding_idx is not None:
            self.places = nn.Embedding(rows, WIDTH, padding_idx=padding_idx)
        self.layers = nn.ModuleList(layers)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens, output_attentions=False):
        x, all_weights = self.tokens(tokens), []
        if self.places is not None:
            first = self.places.padding_idx + 1
            x = x + self.places(torch.arange(first, first + tokens.shape[1]))
        for layer in self.layers:
            x, weights = layer(x)
            all_weights.append(weights)
        logits = self.head(self.norm(x))
        return (logits, tuple(all_weights)) if output_attentions else logits


class Asking(Decoder):
    """What is read at the end are vectors that began as questions, not as tokens."""

    def __init__(self, *layers: nn.Module):
        super().__init__(*layers)
        self.question = nn.Parameter(torch.randn(WIDTH))

    def forward(self, tokens):
        x = self.tokens(tokens)
        x = torch.cat((x, self.question.expand_as(x)), dim=1)
        for layer in self.layers:
            x, _ = layer(x)
        return self.head(self.norm(x[:, tokens.shape[1] :]))


Build = Callable[[], nn.Module]


def of(attend: Callable[[], nn.Module]) -> Build:
    return lambda: Decoder(Layer(attend()), Layer(attend()))


DESIGNS: dict[str, tuple[str, Build, Build]] = {
    "a sink in the softmax": ("returned_weights.eval", of(Halved), of(Sink)),
    "a sink by its size": ("mixing.outside_attention", of(Merged), of(SinkBySize)),
    "a sink, and nothing else that mixes": ("mixing.outside_attention", of(Merged), of(Sink)),
    "a short convolution mixes": ("mixing.outside_attention", of(Merged), of(Convolved)),
    "linear attention beside attention": (
        "mixing.outside_attention",
        of(Merged),
        lambda: Decoder(Layer(Attend()), Layer(LinearAttention())),
    ),
    "a short convolution of values": ("relative.values", of(TurnedValues), of(Convolved)),
    "normalised queries and keys": (
        "attention_scale.missing",
        of(lambda: Normed(norms=False)),
        of(Normed),
    ),
    "two groups of values": (
        "weights.groups",
        of(lambda: Differential(both=False)),
        of(Differential),
    ),
    "a gain on the residual": (
        "residual.none",
        lambda: Decoder(Layer(Attend(), "none"), Layer(Attend(), "none")),
        lambda: Decoder(Gained(Attend()), Gained(Attend())),
    ),
    "a second stream that predicts": (
        "residual.none",
        lambda: Asking(Layer(TwoStreams(), "none"), Layer(TwoStreams(), "none")),
        lambda: Asking(Layer(TwoStreams()), Layer(TwoStreams())),
    ),
    "layers without a feed-forward layer": (
        "residual.skips",
        lambda: Decoder(Layer(Attend(), "skips"), Layer(Attend(), "skips")),
        lambda: Decoder(RecurrentLayer(), RecurrentLayer()),
    ),
    "a router that returns two things": (
        "residual.skips",
        lambda: Decoder(Layer(Attend(), "skips"), Layer(Attend(), "skips")),
        lambda: Decoder(RoutedLayer(Attend()), RoutedLayer(Attend())),
    ),
    "attention behind a recurrence": (
        "relative.values",
        of(TurnedValues),
        lambda: Decoder(Layer(Running()), Layer(Attend())),
    ),
    "a feed-forward layer for two streams": (
        "shared.norm",
        lambda: Decoder(OneFeedForward(Attend(), True), OneFeedForward(Attend(), True)),
        lambda: Decoder(OneFeedForward(Attend()), OneFeedForward(Attend())),
    ),
    "a router that few tokens teach": (
        "gradients.zero",
        lambda: Decoder(ChoosingLayer(0.0)),
        lambda: Decoder(ChoosingLayer(0.005)),
    ),
    "layers that take turns to know places": (
        "positions.tokens",
        of(Placeless),
        lambda: Decoder(Layer(Placeless()), Layer(Attend())),
    ),
    "positions that begin behind padding": (
        "limit.at",
        lambda: Decoder(Layer(Attend()), padding_idx=PAD, rows=LIMIT - 3),
        lambda: Decoder(Layer(Attend()), padding_idx=PAD),
    ),
}


@pytest.mark.parametrize("design", DESIGNS)
def test_an_unusual_design_is_left_in_peace_and_the_bug_beside_it_is_named(design: str):
    case, broken, healthy = DESIGNS[design]
    found: list[set[str]] = []
    for build in (broken, healthy):
        torch.manual_seed(0)
        report = examine(build(), kind="decoder", only=[case.partition(".")[0]])
        assert report.not_run == []
        found.append({f.case for f in report.findings if f.severity != "note"})
    assert case in found[0]
    assert found[1] == set()
