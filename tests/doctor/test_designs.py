"""Designs of published models that are unusual and healthy, each in a look-alike of our own: the
check that once took it for a bug leaves it in peace, and still names the bug beside it."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as fused

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


class Cosines(Attend):
    """Products of vectors of length one, and a scale above 1; or, a bug, of any vectors."""

    def __init__(self, unit=True):
        super().__init__()
        self.unit = unit

    def queries_and_keys(self, x):
        q, k = super().queries_and_keys(x)
        return (F.normalize(q, dim=-1), F.normalize(k, dim=-1)) if self.unit else (q, k)

    def scores(self, q, k):
        return super().scores(q, k) * q.shape[-1]


class LengthOne(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.normalize(x, dim=-1) * self.gain


class LengthOneNorm(LengthOne):
    """Called a norm, and one by its formula."""


class NormedToLengthOne(Normed):
    def __init__(self):
        super().__init__()
        self.norm_q, self.norm_k = (LengthOneNorm(WIDTH // HEADS) for _ in range(2))


class VarianceNorm(nn.LayerNorm):
    """A norm without its square root."""

    def forward(self, x):
        return (x - x.mean(-1, keepdim=True)) / x.var(-1, keepdim=True)


class NormLinear(nn.Linear):
    """A matrix with normalised rows: called a norm, and none."""

    def forward(self, x):
        return F.linear(x, F.normalize(self.weight, dim=-1), self.bias)


class NormedRows(Attend):
    def __init__(self):
        super().__init__()
        self.o = NormLinear(WIDTH, WIDTH)


class Sloped(Attend):
    """A bias that grows with distance: by fixed slopes, a bug; learnt ones may change."""

    rotary = False

    def __init__(self, learnt=False):
        super().__init__()
        slopes = torch.tensor([0.5, 0.25])
        self.slopes = nn.Parameter(slopes) if learnt else slopes

    def scores(self, q, k):
        n = torch.arange(q.shape[-2])
        return super().scores(q, k) + self.slopes[:, None, None] * (n[:, None] - n).abs()


class Dropped(Attend):
    """A rate of dropout that is read when the model is built, and given to a kernel, or to none."""

    def __init__(self, gives=True):
        super().__init__()
        self.drop = nn.Dropout(0.25)
        self.rate = self.drop.p if gives else 0.0

    def forward(self, x):
        rate = self.rate if self.training else 0.0
        read = fused(*self.queries_and_keys(x), self.values(x), is_causal=True, dropout_p=rate)
        return self.o(read.transpose(1, 2).flatten(2)), None


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


class AfterNorm(Layer):
    """The stream is overwritten by its norm."""

    def forward(self, x):
        return super().forward(self.norm_1(x))


class Beginning(Layer):
    """The first layer begins with the norm of the embeddings."""

    def __init__(self, first: bool):
        super().__init__(Attend())
        self.begin = nn.LayerNorm(WIDTH) if first else nn.Identity()

    def forward(self, x):
        return super().forward(self.begin(x))


class Stepping(Layer):
    """Vectors of length one, and a short step from each to what a sublayer says."""

    def __init__(self):
        super().__init__(Attend())
        self.norm_1 = self.norm_2 = nn.Identity()
        self.step = nn.Parameter(torch.full((WIDTH,), 0.1))

    def forward(self, x):
        for sublayer in (lambda x: self.attend(x)[0], self.feed):
            x = F.normalize(x + self.step * (F.normalize(sublayer(x), dim=-1) - x), dim=-1)
        return x, None


class Broad(nn.Module):
    """A norm whose gain has three axes."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1, 1, WIDTH))

    def forward(self, x):
        return F.layer_norm(x, (WIDTH,)) * self.gain


class BroadNorm(Broad):
    """By its name too."""


class Post(Layer):
    def __init__(self):
        super().__init__(Attend())
        self.norm_1, self.norm_2 = BroadNorm(), BroadNorm()

    def forward(self, x):
        x = self.norm_1(x + self.attend(x)[0])
        return self.norm_2(x + self.feed(x)), None


class Bare(nn.Module):
    """Weights and gains are the layer's own: there is no module in it."""

    def __init__(self, residual: str):
        super().__init__()
        self.residual, self.q, self.k, self.v = residual, *(self.matrix() for _ in range(3))
        self.up, self.down, self.gain = (
            self.matrix(),
            self.matrix(),
            nn.Parameter(torch.ones(WIDTH)),
        )

    def matrix(self):
        return nn.Parameter(torch.randn(WIDTH, WIDTH) / 4)

    def norm(self, x):
        return F.layer_norm(x, (WIDTH,), self.gain)

    def sublayer(self, x):
        n = x.shape[1]
        scores = (x @ self.q) @ (x @ self.k).mT * WIDTH**-0.5
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -1e9)
        return (scores.softmax(-1) @ x @ self.v + x @ self.up).relu() @ self.down

    def forward(self, x):
        if self.residual == "post":
            return self.norm(x + self.sublayer(x)), None
        y = self.sublayer(self.norm(x))
        return (x + y if self.residual == "pre" else y), None


class LengthFirst(nn.Module):
    """A layer of a stream that is (length, batch, width)."""

    def __init__(self):
        super().__init__()
        self.layer = Layer(Attend())

    def forward(self, x):
        return self.layer(x.transpose(0, 1))[0].transpose(0, 1), None


class Recurrence(nn.Module):
    """A running mean in place of attention, inside a gate: no feed-forward layer follows."""

    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        value, gate = self.into(x).chunk(2, dim=-1)
        counts = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        return self.out(value.cumsum(1) / counts * F.silu(gate))


class Gated(nn.Module):
    """Attention without a softmax inside a gate, and no feed-forward layer: one matrix writes."""

    def __init__(self):
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.value, self.key = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, 8)
        self.out = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.norm(x)
        key = turn(self.key(y))
        weights = (key @ key.mT).relu().square().tril() / x.shape[1]
        return x + self.out(F.silu(self.gate(y)) * (weights @ self.value(y))), None


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


class Turned(Decoder):
    """Inside, the length comes first."""

    def forward(self, tokens):
        x = self.tokens(tokens).transpose(0, 1)
        for layer in self.layers:
            x, _ = layer(x)
        return self.head(self.norm(x)).transpose(0, 1)


class Drowned(Decoder):
    def __init__(self):
        super().__init__(Layer(Attend()), padding_idx=PAD)
        assert self.places is not None
        nn.init.normal_(self.places.weight, std=30)


class Sharing(Decoder):
    """Each layer adds a share of what the first was given; at first, none."""

    def __init__(self):
        super().__init__(Layer(Attend()), Layer(Attend()))
        for layer in self.layers:
            layer.shares = nn.Parameter(torch.tensor([1.0, 0.0]))
            layer.forward = partial(self.share, layer)

    @staticmethod
    def share(layer, x, first):
        return Layer.forward(layer, layer.shares[0] * x + layer.shares[1] * first)

    def forward(self, tokens):
        x = first = self.tokens(tokens)
        for layer in self.layers:
            x, _ = layer(x, first)
        return self.head(self.norm(x))


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


def normed(norm: nn.Module) -> Layer:
    layer = Layer(Attend())
    layer.norm_1 = norm
    return layer


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
    "a norm of the embeddings in the first layer": (
        "residual.after_norm",
        lambda: Decoder(AfterNorm(Attend()), AfterNorm(Attend())),
        lambda: Decoder(Beginning(first=True), Beginning(first=False)),
    ),
    "shares of the beginning": (
        "residual.after_norm",
        lambda: Decoder(AfterNorm(Attend()), AfterNorm(Attend())),
        Sharing,
    ),
    "steps on a sphere": (
        "residual.none",
        lambda: Decoder(Layer(Attend(), "none"), Layer(Attend(), "none")),
        lambda: Decoder(Stepping(), Stepping()),
    ),
    "gains of three axes": (
        "residual.none",
        lambda: Decoder(Layer(Attend(), "none"), Layer(Attend(), "none")),
        lambda: Decoder(Post(), Post()),
    ),
    "layers without modules": (
        "residual.none",
        lambda: Decoder(Bare("none"), Bare("none")),
        lambda: Decoder(Bare("pre"), Bare("pre")),
    ),
    "layers without modules, and a norm that comes last": (
        "residual.none",
        lambda: Decoder(Bare("none"), Bare("none")),
        lambda: Decoder(Bare("post"), Bare("post")),
    ),
    "a stream whose length comes first": (
        "embedding_scale.drowned",
        Drowned,
        lambda: Turned(LengthFirst(), LengthFirst()),
    ),
    "queries and keys of length one": (
        "norms.size",
        lambda: Decoder(normed(LengthOneNorm(WIDTH))),
        of(NormedToLengthOne),
    ),
    "a matrix with normalised rows": (
        "norms.scale",
        lambda: Decoder(normed(VarianceNorm(WIDTH))),
        of(NormedRows),
    ),
    "cosines, and a scale": (
        "attention_scale.multiplied",
        of(lambda: Cosines(unit=False)),
        of(Cosines),
    ),
    "slopes that are learnt": (
        "relative.wrong_sign",
        of(Sloped),
        of(lambda: Sloped(learnt=True)),
    ),
    "dropout in a kernel, by a rate that was read once": (
        "dropout.unused",
        of(lambda: Dropped(gives=False)),
        of(Dropped),
    ),
    "layers without a feed-forward layer": (
        "residual.skips",
        lambda: Decoder(Layer(Attend(), "skips"), Layer(Attend(), "skips")),
        lambda: Decoder(RecurrentLayer(), RecurrentLayer()),
    ),
    "attention inside a gate": (
        "residual.skips",
        lambda: Decoder(Layer(Attend(), "skips"), Layer(Attend(), "skips")),
        lambda: Decoder(Gated(), Gated()),
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
