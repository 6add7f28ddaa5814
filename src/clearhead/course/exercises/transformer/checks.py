"""Checks of exercise 20. The model's outputs are compared with those of its own layers, called here
in the right order; the last check trains the model."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.course.checking import Checks, FunctionProbe, Learned, distance, require
from clearhead.course.exercises.sinusoid.solution import sinusoid

CHECKS = Checks()
PAD, BOS, EOS = 0, 1, 2
SIZES = (13, 16, 2, 20, 2)
MODEL = "CopyTransformer"


def shaken(kind: Any, sizes: tuple[int, ...] = SIZES) -> Any:
    """Return the model with random weights, so that every part affects the output."""
    model = kind(*sizes)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            mean = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            parameter.copy_(mean + 0.3 * torch.randn(parameter.shape))
    return model


def sentences(*lengths: int, vocab: int = 13) -> tuple[Tensor, Tensor]:
    """Return a source and a target of random symbols, padded on the right."""
    n, places = torch.tensor(lengths)[:, None], torch.arange(max(lengths) + 1)
    symbols = torch.randint(3, vocab, (len(lengths), len(places)))
    source = symbols.masked_fill(places == n, EOS).masked_fill(places > n, PAD)
    return source, torch.cat((torch.full_like(n, BOS), source), dim=1)


def embedded(model: Any, tokens: Tensor) -> Tensor:
    """Return the vectors of the table plus those of the positions."""
    return model.table.embed(tokens) + sinusoid(tokens.shape[1], SIZES[1])


def memory_of(model: Any, source: Tensor) -> Tensor:
    """Return the memory that the encoder's layers compute in the right order."""
    x = embedded(model, source)
    for layer in model.encoder:
        x = layer(x, source != PAD)
    return model.source_norm(x)


def logits_of(model: Any, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
    """Return the logits that the decoder's layers compute in the right order."""
    x = embedded(model, target)
    for layer in model.decoder:
        x = layer(x, memory, target != PAD, source != PAD)
    return model.table.score(model.target_norm(x))


class Scripted(nn.Module):
    """A model that generates its script, by default its source. The likeliest token is only a
    little likelier than the others. The model counts how often it encodes, and records whether its
    logits have a graph."""

    def __init__(self, never_ends: bool = False, script: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.never_ends, self.script, self.n_encoded, self.has_graph = never_ends, script, 0, False
        self.lead = nn.Parameter(torch.tensor(0.5))

    def encode(self, source: Tensor) -> Tensor:
        """Count the calls."""
        self.n_encoded += 1
        return torch.tensor([self.script]) if self.script else source

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """Return logits that follow the script token by token, or lead elsewhere if the target
        begins wrongly."""
        n = len(self.script) or int((source != PAD).sum())
        places = []
        for i in range(target.shape[1]):
            token = int(memory[0, i % memory.shape[1]])
            token = 5 if self.never_ends else token if target[0, 0] == BOS else 12
            places.append(token if i < n or self.never_ends else 11)
        logits = self.lead * F.one_hot(torch.tensor([places]), 13)
        self.has_graph |= logits.requires_grad
        return logits

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decode(target, self.encode(source), source)


@torch.no_grad()
def _probe_model(kind: Any) -> object:
    model, (source, target) = shaken(kind).eval(), sentences(6, 3)
    return [model.encode(source), model(source, target[:, :-1])]


class _Linear(nn.Module):
    """The simplest model that has a gradient: its logits depend on the input token alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(13, 13))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.table[target] + 0 * source.sum()


def stepped(f: Callable[..., Any], stale: bool = False) -> tuple[float, Tensor, float, Tensor]:
    """Return the loss and the table after one step of the answer, and the right loss and table."""
    model, (source, target) = _Linear(), sentences(5, 2, 3)
    loss = F.cross_entropy(
        model.table[target[:, :-1]].flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD
    )
    (gradient,) = torch.autograd.grad(loss, [model.table])
    wanted = model.table.detach() - 0.5 * gradient
    if stale:
        model.table.grad = torch.ones_like(model.table)
    found = f(model, torch.optim.SGD(model.parameters(), lr=0.5), source, target)
    return float(found), model.table.detach(), loss.item(), wanted


def _probe_step(f: Any) -> object:
    loss, table, _, _ = stepped(f, stale=True)
    return [round(loss, 4), table]


def _probe_copy(f: Any) -> object:
    source, _ = sentences(4)
    ended, endless = Scripted(), Scripted(never_ends=True)
    found = [list(map(int, f(ended, source, 9))), list(map(int, f(endless, source, 6)))]
    return [*found, ended.n_encoded]


PROBES: dict[str, FunctionProbe] = {
    MODEL: _probe_model,
    "training_step": _probe_step,
    "copy": _probe_copy,
}


@CHECKS.about(MODEL)
@torch.no_grad()
def shapes(it: Learned) -> None:
    """The shapes of memory and logits are right."""
    model, (source, target) = it[MODEL](*SIZES), sentences(6, 3)
    found = tuple(model.encode(source).shape), tuple(model(source, target).shape)
    require(found == ((2, 7, 16), (2, 8, 13)), found=found)


@CHECKS.about(MODEL)
@torch.no_grad()
def vectors(it: Learned) -> None:
    """The vectors are those of the table plus the sinusoid."""
    model, tokens = shaken(it[MODEL]), torch.randint(3, 13, (2, 5))
    change = distance(model.embed(tokens), embedded(model, tokens))
    require(change < 1e-4, change=f"{change:.2g}")


@CHECKS.about(MODEL)
@torch.no_grad()
def source_padding(it: Learned) -> None:
    """More padding in the source changes nothing."""
    model, (source, target) = shaken(it[MODEL]).eval(), sentences(5)
    longer = torch.cat((source, torch.full((1, 3), PAD)), dim=1)
    memory = distance(model.encode(longer)[:, :6], model.encode(source))
    logits = distance(model(longer, target), model(source, target))
    require(memory < 1e-4 and logits < 1e-4, memory=f"{memory:.2g}", logits=f"{logits:.2g}")


@CHECKS.about(MODEL)
@torch.no_grad()
def no_future(it: Learned) -> None:
    """A later target token does not change an earlier logit."""
    model, (source, target) = shaken(it[MODEL]).eval(), sentences(6)
    before = model(source, target)
    for place in range(1, 8):
        other = target.clone()
        other[0, place] = 3 + (other[0, place] + 1) % 10
        change = distance(model(source, other)[:, :place], before[:, :place])
        require(change < 1e-5, token=place, change=f"{change:.2g}")


@CHECKS.about(MODEL)
@torch.no_grad()
def the_source_matters(it: Learned) -> None:
    """Every source token matters, from the first position on."""
    model, (source, target) = shaken(it[MODEL]).eval(), sentences(6)
    before, blind = model(source, target)[0, 0], []
    for place in range(6):
        other = source.clone()
        other[0, place] = 3 + (other[0, place] + 1) % 10
        if distance(model(other, target)[0, 0], before) < 1e-6:
            blind.append(place)
    require(not blind, blind=", ".join(map(str, blind)))


@CHECKS.about(MODEL)
@torch.no_grad()
def layers_in_order(it: Learned) -> None:
    """Memory and logits are those of the layers in the right order."""
    model, (source, target) = shaken(it[MODEL]).eval(), sentences(6, 3)
    memory = memory_of(model, source)
    real = (source != PAD)[..., None]
    one = distance(model.encode(source) * real, memory * real)
    real = (target != PAD)[..., None]
    wanted = logits_of(model, target, memory, source)
    two = distance(model.decode(target, memory, source) * real, wanted * real)
    require(one < 1e-4 and two < 1e-4, memory=f"{one:.2g}", logits=f"{two:.2g}")


@CHECKS.about(MODEL)
def gradients(it: Learned) -> None:
    """Every parameter gets a gradient."""
    model, (source, target) = it[MODEL](*SIZES), sentences(6, 3)
    model(source, target).square().sum().backward()
    dead = [name for name, p in model.named_parameters() if p.grad is None]
    require(not dead, dead=", ".join(dead[:3]))


@CHECKS.about("training_step")
def step_loss(it: Learned) -> None:
    """The loss is the mean over the real targets."""
    found, _, wanted, _ = stepped(it["training_step"])
    require(abs(found - wanted) < 1e-3, found=f"{found:.3f}", wanted=f"{wanted:.3f}")


@CHECKS.about("training_step")
def step_weights(it: Learned) -> None:
    """The step uses only the gradient of this loss."""
    _, found, _, wanted = stepped(it["training_step"], stale=True)
    require(distance(found, wanted) < 1e-4, change=f"{distance(found, wanted):.2g}")


@CHECKS.about("copy")
def writes(it: Learned) -> None:
    """The result is what a model that copies without errors generates."""
    source, _ = sentences(5)
    model, wanted = Scripted(), source[0, :-1].tolist()
    found = [int(token) for token in it["copy"](model, source, 9)]
    require(found == wanted, found=found, wanted=wanted)


@CHECKS.about("copy")
def ends(it: Learned) -> None:
    """Generation ends after max_new tokens if the model generates no end token."""
    source, _ = sentences(5)
    found = [int(token) for token in it["copy"](Scripted(never_ends=True), source, 7)]
    require(found == [5] * 7, found=len(found))


@CHECKS.about("copy")
def encodes_once(it: Learned) -> None:
    """The source is encoded once, because it does not change."""
    source, _ = sentences(5)
    model = Scripted()
    it["copy"](model, source, 9)
    require(model.n_encoded == 1, found=model.n_encoded)


@CHECKS.about("copy")
def every_token(it: Learned) -> None:
    """Any token can be generated, even tokens that no text should have."""
    source, _ = sentences(5)
    model, wanted = Scripted(script=(7, PAD, BOS, 7, EOS)), [7, PAD, BOS, 7]
    found = [int(token) for token in it["copy"](model, source, 9)]
    require(found == wanted, found=found, wanted=wanted)


@CHECKS.about("copy")
def no_graph(it: Learned) -> None:
    """No graph is kept for a backward() that is never called."""
    source, _ = sentences(3)
    model = Scripted()
    it["copy"](model, source, 9)
    require(not model.has_graph)


@CHECKS.about("copy")
def learns_to_copy(it: Learned) -> None:
    """A model that was trained on random strings of three to five symbols copies other strings."""
    torch.manual_seed(2)
    model = it[MODEL](11, 32, 4, 64, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses: list[float] = []
    for step in range(400):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 40, (400 - step) / 200)
        source, target = sentences(*torch.randint(3, 6, (48,)).tolist(), vocab=11)
        losses.append(float(it["training_step"](model, optimizer, source, target)))
    right = 0
    for n in torch.randint(3, 6, (40,)).tolist():
        source, _ = sentences(n, vocab=11)
        right += [int(t) for t in it["copy"](model, source, 8)] == source[0, :n].tolist()
    require(right >= 36, right=right, first=f"{losses[0]:.2f}", last=f"{losses[-1]:.2f}")
