"""Patterns of other people's code, each in a look-alike of our own: the bug is named by its check,
and the healthy twin is left in peace by the same check."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearhead.doctor import examine

VOCABULARY, WIDTH, HEADS, LIMIT, PAD = 37, 16, 2, 24, 0


class Attend(nn.Module):
    def __init__(self, groups="same"):
        super().__init__()
        self.groups = groups
        self.q, self.o = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.k, self.v = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.kept: tuple | None = None

    def forward(self, x, allowed, keep=False):
        q, k, v = (
            f(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        if keep:
            k, v = (
                (k, v) if self.kept is None else (torch.cat(p, 2) for p in zip(self.kept, (k, v)))
            )
            self.kept = k, v
        k = k.repeat_interleave(2, dim=1)
        v = v.repeat_interleave(2, dim=1) if self.groups == "same" else v.repeat(1, 2, 1, 1)
        return self.o(F.scaled_dot_product_attention(q, k, v, allowed).transpose(1, 2).flatten(2))


class Biased(Attend):
    """Scores, their scale and a bias of distance in one operation."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, allowed, keep=False):
        batch, n, _ = x.shape
        q = self.q(x).view(batch, n, 4, -1).transpose(1, 2).flatten(0, 1)
        k, v = (f(x).view(batch, n, 2, -1).transpose(1, 2) for f in (self.k, self.v))
        k, v = (t.repeat_interleave(2, dim=1).flatten(0, 1) for t in (k, v))
        far = -(torch.arange(n)[:, None] - torch.arange(n)).abs().to(x).expand(len(q), -1, -1)
        scores = torch.baddbmm(far, q, k.transpose(1, 2), alpha=self.scale)
        weights = scores.view(batch, 4, n, n).masked_fill(~allowed, -1e9).softmax(-1)
        return self.o((weights.flatten(0, 1) @ v).view(batch, 4, n, -1).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, groups="same", skips=False):
        super().__init__()
        self.skips, self.attend = skips, Attend(groups)
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.gate, self.up = nn.Linear(WIDTH, 48), nn.Linear(WIDTH, 48)
        self.down = nn.Linear(48, WIDTH)

    def forward(self, x, allowed, keep=False):
        h = x + self.attend(self.norm_1(x), allowed, keep)
        y = self.norm_2(h)
        y = self.down(F.silu(self.gate(y)) * self.up(y))
        return (x if self.skips else h) + y


class Decoder(nn.Module):
    """Tokens to logits; what subclasses change is a method or a flag."""

    def __init__(self, small="down", groups="same", skips=False, padding_idx=None):
        super().__init__()
        self.pad_id, self.max_len = PAD, LIMIT
        self.tokens = nn.Embedding(VOCABULARY, WIDTH, padding_idx=padding_idx)
        self.places = nn.Embedding(LIMIT, WIDTH)
        self.layers = nn.ModuleList(Layer(groups, skips) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)
        for name, weight in self.layers.named_parameters():
            if weight.dim() > 1:
                std = 0.1 / (2 if f"{small}." in name or ".o." in name else 1)
                nn.init.normal_(weight, std=std)

    def states(self, tokens, allowed=None, start=0, keep=False):
        n = tokens.shape[1]
        x = self.tokens(tokens) + self.places(torch.arange(start, start + n))
        if allowed is None:
            allowed = torch.ones(n, start + n, dtype=torch.bool).tril(start)
        for layer in self.layers:
            x = layer(x, allowed, keep)
        return self.norm(x)

    def forward(self, tokens):
        return self.head(self.states(tokens))


class Scaled(Decoder):
    def __init__(self, scale=1.0):
        super().__init__()
        for layer in self.layers:
            layer.attend = Biased(scale)


class Growing(Decoder):
    def __init__(self, grows=True):
        super().__init__()
        self.grows = grows
        self.maps: list[torch.Tensor] = []

    def forward(self, tokens):
        states = self.states(tokens)
        self.maps = [*(self.maps if self.grows else []), states.detach()]
        return self.head(states)


class Remembering(Decoder):
    """The mask of the first batch is kept."""

    mask = None

    def __init__(self, keeps=True):
        super().__init__()
        self.keeps = keeps

    def forward(self, tokens):
        n = tokens.shape[1]
        allowed = torch.ones(n, n, dtype=torch.bool).tril() & (tokens != PAD)[:, None, None]
        allowed = allowed | torch.eye(n, dtype=torch.bool)
        if self.keeps and self.mask is not None and self.mask.shape == allowed.shape:
            allowed = self.mask
        self.mask = allowed if self.keeps else None
        return self.head(self.states(tokens, allowed))


class PlainTable(Decoder):
    def __init__(self, plain=True):
        super().__init__()
        table = torch.randn(LIMIT, WIDTH)
        self.table = table if plain else nn.Parameter(table)

    def forward(self, tokens):
        return self.head(self.states(tokens) + self.table[: tokens.shape[1]])


class Sinusoids(Decoder):
    """A plain table that anybody can compute again."""

    def __init__(self):
        super().__init__()
        angles = torch.arange(LIMIT)[:, None] / 100 ** (torch.arange(0, WIDTH, 2) / WIDTH)
        self.table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)

    def forward(self, tokens):
        return self.head(self.states(tokens) + self.table[: tokens.shape[1]])


class Packed(Decoder):
    def __init__(self, apart=True):
        super().__init__()
        self.apart = apart

    def forward(self, tokens, doc_ids=None):
        doc_ids = torch.zeros_like(tokens) if doc_ids is None else doc_ids
        one, other = doc_ids[:, :, None], doc_ids[:, None]
        n = torch.arange(tokens.shape[1])
        allowed = (n[:, None] >= n) & (one == other if self.apart else one >= other)
        starts = (one > other).sum(dim=-1)
        x = self.tokens(tokens) + self.places(n - starts)
        for layer in self.layers:
            x = layer(x, allowed[:, None])
        return self.head(self.norm(x))


class Starting(Decoder):
    """A cache that the model keeps; its caller says where the tokens begin."""

    def __init__(self, restarts=False):
        super().__init__()
        self.restarts = restarts

    def reset_cache(self):
        for layer in self.layers:
            layer.attend.kept = None

    def forward(self, tokens, use_cache=False, start=0):
        if self.restarts and start:
            n = tokens.shape[1]
            allowed = torch.ones(n, start + n, dtype=torch.bool).tril(start)
            return self.head(self.states(tokens, allowed, 0, use_cache))
        return self.head(self.states(tokens, None, start, use_cache))


class Ending(Decoder):
    """Generation ends at an attribute."""

    eos_id = 2

    def __init__(self, ends="all"):
        super().__init__()
        self.ends = ends

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens):
        done = torch.zeros(len(tokens), dtype=torch.bool)
        for _ in range(max_new_tokens):
            new = self(tokens)[:, -1].argmax(-1).masked_fill(done, PAD)
            tokens, done = torch.cat((tokens, new[:, None]), 1), done | (new == self.eos_id)
            if done.all() if self.ends == "all" else done.any():
                break
        return tokens


class Prompts(Decoder):
    """Prompts are padded on the right, and tokens are written over padding."""

    def __init__(self, reads="last"):
        super().__init__()
        self.reads = reads

    @torch.no_grad()
    def generate(self, prompts, max_new_tokens):
        rows, lengths = torch.arange(len(prompts)), (prompts != PAD).sum(1)
        tokens = F.pad(prompts, (0, max_new_tokens), value=PAD)
        for _ in range(max_new_tokens):
            logits = self(tokens[:, : int(lengths.max())])
            logits[..., PAD] = -1e9
            last = logits[rows, lengths - 1] if self.reads == "last" else logits[:, -1]
            tokens[rows, lengths] = last.argmax(-1)
            lengths = lengths + 1
        return tokens


class Loss(Decoder):
    """Targets of padding do not count."""

    def __init__(self, divide="counted", sign=1.0):
        super().__init__()
        self.divide, self.sign = divide, sign

    def forward(self, tokens, targets=None):
        logits = self.head(self.states(tokens))
        if targets is None:
            return logits, None
        losses = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
        uniform = -logits.log_softmax(-1).mean(-1)
        losses = 0.9 * losses + self.sign * 0.1 * uniform
        counted = (targets != PAD).to(losses)
        total = (losses * counted).sum()
        return logits, total / (counted.sum() if self.divide == "counted" else counted.numel())


class OwnLoss(Decoder):
    """Targets are made of the tokens, and moved once more, or not."""

    def __init__(self, twice=True):
        super().__init__()
        self.twice = twice

    def forward(self, tokens):
        logits, targets = super().forward(tokens[:, :-1]), tokens[:, 1:]
        if self.twice:
            logits, targets = logits[:, :-1], targets[:, 1:]
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class TopK(Decoder):
    """The threshold of the first row, or each row's own."""

    def __init__(self, rows=slice(0, 1)):
        super().__init__()
        self.rows = rows

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens, do_sample=False, top_k=None):
        for _ in range(max_new_tokens):
            logits = self(tokens)[:, -1]
            if do_sample and top_k:
                least = logits.topk(top_k).values[self.rows, -1:]
                logits = logits.masked_fill(logits < least, -1e9)
            new = logits.softmax(-1).multinomial(1) if do_sample else logits.argmax(-1)[:, None]
            tokens = torch.cat((tokens, new), 1)
        return tokens


class Pooled(nn.Module):
    """One vector for each sentence."""

    def __init__(self, counts_padding=False):
        super().__init__()
        self.pad_id, self.counts_padding = PAD, counts_padding
        self.tokens = nn.Embedding(VOCABULARY, WIDTH, padding_idx=PAD)
        self.places = nn.Embedding(LIMIT, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        real = tokens != PAD
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x, real[:, None, None])
        weights = real.to(x)[:, :, None] * (0 if self.counts_padding else 1)
        weights = weights + (1 if self.counts_padding else 0)
        return (self.norm(x) * weights).sum(1) / weights.sum(1)


class Tagger(Pooled):
    """One of five tags for each token."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x, (tokens != PAD)[:, None, None])
        return self.head(self.norm(x))


class Swapped(nn.Module):
    """Cross-attention; both sequences are of one length, so that either order runs."""

    def __init__(self, swapped=True):
        super().__init__()
        self.swapped = swapped
        self.source, self.target = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LIMIT, WIDTH)
        self.cross = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.layer, self.head = Layer(), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, src, tgt):
        places = self.places(torch.arange(tgt.shape[1]))
        n = tgt.shape[1]
        x = self.layer(self.target(tgt) + places, torch.ones(n, n, dtype=torch.bool).tril())
        memory = self.source(src) + self.places(torch.arange(src.shape[1]))
        given = (memory, x, x) if self.swapped else (x, memory, memory)
        return self.head(x + self.cross(*given, need_weights=False)[0])


class Translating(Swapped):
    """Generation by another name, which leaves the mode as it was, or does not."""

    def __init__(self, back=True):
        super().__init__(swapped=False)
        self.back, self.dropout = back, nn.Dropout(0.1)

    @torch.no_grad()
    def translate(self, src, max_len=8):
        training = self.training
        self.eval()
        tokens = torch.ones(len(src), 1, dtype=torch.long)
        for _ in range(max_len):
            tokens = torch.cat((tokens, self(src, tokens)[:, -1:].argmax(-1)), 1)
        self.train(training and self.back)
        return tokens


class EditedLabels(Swapped):
    """The decoder reads its labels, moved by one."""

    def __init__(self, in_place=True):
        super().__init__(swapped=False)
        self.pad_id, self.in_place = PAD, in_place

    def forward(self, src, labels):
        fill = labels.masked_fill_ if self.in_place else labels.masked_fill
        read = F.pad(fill(labels == -100, PAD)[:, :-1], (1, 0), value=1)
        logits = super().forward(src, read)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


Build = Callable[[], nn.Module]
PATTERNS: dict[str, tuple[str, Build, Build]] = {
    "initialisation.wrong_matrix": ("decoder", lambda: Decoder(small="up"), Decoder),
    "attention_scale.missing": ("decoder", Scaled, lambda: Scaled((WIDTH // HEADS) ** -0.5)),
    "weights.groups": ("decoder", lambda: Decoder(groups="tiled"), Decoder),
    "residual.skips": ("decoder", lambda: Decoder(skips=True), Decoder),
    "gradients.pad_row": (
        "decoder",
        lambda: Decoder(padding_idx=3),
        lambda: Decoder(padding_idx=PAD),
    ),
    "determinism.grows": ("decoder", Growing, lambda: Growing(grows=False)),
    "determinism.state": ("decoder", Remembering, lambda: Remembering(keeps=False)),
    "determinism.input": ("encoder-decoder", EditedLabels, lambda: EditedLabels(in_place=False)),
    "registered.plain": ("decoder", PlainTable, Sinusoids),
    "documents.seen": ("decoder", lambda: Packed(apart=False), Packed),
    "cache.one": ("decoder", lambda: Starting(restarts=True), Starting),
    "stops.any_row": ("decoder", lambda: Ending(ends="any"), Ending),
    "batch_generation.padded": ("decoder", lambda: Prompts(reads="column"), Prompts),
    "ignored_targets.divided_by_all": ("decoder", lambda: Loss(divide="all"), Loss),
    "loss_value.smoothing_sign": ("decoder", lambda: Loss(sign=-1.0), Loss),
    "loss_value.shift_2": ("decoder", OwnLoss, lambda: OwnLoss(twice=False)),
    "batch_generation.rows": ("decoder", TopK, lambda: TopK(rows=slice(None))),
    "padding.no_mask": ("encoder", lambda: Pooled(counts_padding=True), Pooled),
    "source.swapped": ("encoder-decoder", Swapped, lambda: Swapped(swapped=False)),
    "greedy.mode": ("encoder-decoder", lambda: Translating(back=False), Translating),
}


@pytest.mark.parametrize("case", PATTERNS)
def test_a_pattern_is_named_and_its_twin_is_left_in_peace(case: str):
    kind, broken, healthy = PATTERNS[case]
    found: list[set[str]] = []
    for build in (broken, healthy):
        torch.manual_seed(0)
        report = examine(build(), kind=kind, only=[case.partition(".")[0]])  # type: ignore[arg-type]
        assert report.not_run == []
        found.append({f.case for f in report.findings if f.severity != "note"})
    assert case in found[0]
    assert found[1] == set()


@pytest.mark.parametrize("build", [Pooled, Tagger])
def test_an_encoder_that_does_not_score_its_vocabulary_is_examined(build: Build):
    torch.manual_seed(0)
    report = examine(build(), kind="encoder", quick=True)
    assert report.healthy, report.findings
    assert report.not_run == []
