"""Checks of exercise 19. The answer keeps the names of its parameters, so that its weights can be
used in a correct decoder, which is written here with torch's functions. The doctor examines the
answer last."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.course.checking import Checks, FunctionProbe, Learned, distance, require
from clearhead.course.exercises.specimen import solution

CHECKS = Checks()
SIZES = (50, 32, 4, 2)


def shaken(kind: Any, p_dropout: float = 0.0) -> Any:
    """Return the model with random weights, so that every part affects the output."""
    model = kind(*SIZES, p_dropout)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            mean = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            parameter.copy_(mean + 0.2 * torch.randn(parameter.shape))
    return model


def right_logits(model: Any, tokens: Tensor) -> Tensor:
    """Return what a pre-norm decoder computes with these weights."""
    x = F.embedding(tokens, model.tokens.weight) * math.sqrt(SIZES[1])
    x = x + model.positions[: tokens.shape[1]]
    for layer in model.layers:
        attention, normed = layer.attention, layer.norm_1(x)
        q, k, v = (
            part(normed).unflatten(2, (SIZES[2], -1)).transpose(1, 2)
            for part in (attention.query, attention.key, attention.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + attention.output(mixed.transpose(1, 2).flatten(2))
        x = x + layer.down(layer.up(layer.norm_2(x)).relu())
    return model.norm(x) @ model.tokens.weight.T


def dropped(kind: Any) -> float:
    """Return the share of the numbers that reach the first layer as 0 in training, with a dropout
    of 0.3."""
    model, seen = kind(*SIZES, 0.3).train(), []
    model.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        nn.init.normal_(model.tokens.weight)
        model(torch.randint(50, (16, 64)))
    return (seen[0] == 0).float().mean().item()


@torch.no_grad()
def _probe(kind: Any) -> object:
    return shaken(kind).eval()(torch.randint(50, (2, 7)))


PROBES: dict[str, FunctionProbe] = {
    "findings": lambda f: sorted(f()),
    "Specimen": _probe,
}


@CHECKS.about("findings")
def five_names(it: Learned) -> None:
    """The answer names what the doctor finds in the specimen as it was given."""
    found, wanted = {str(name) for name in it["findings"]()}, solution.findings()
    extra, missing = sorted(found - wanted), len(wanted - found)
    require(found == wanted, n=len(found & wanted), extra=", ".join(extra) or "–", missing=missing)


@CHECKS.about("Specimen")
def nothing_removed(it: Learned) -> None:
    """All parameters keep their names and shapes."""
    found, wanted = (
        {name: tuple(p.shape) for name, p in kind(*SIZES, 0.1).named_parameters()}
        for kind in (it["Specimen"], solution.Specimen)
    )
    off = sorted(found.items() ^ wanted.items())
    require(not off, off=off[0][0] if off else "")


@CHECKS.about("Specimen")
@torch.no_grad()
def no_future(it: Learned) -> None:
    """A later token does not change an earlier logit."""
    model, tokens = shaken(it["Specimen"]).eval(), torch.randint(50, (2, 8))
    before = model(tokens)
    for place in range(1, 8):
        other = tokens.clone()
        other[:, place] = (other[:, place] + 7) % 50
        change = distance(model(other)[:, :place], before[:, :place])
        require(change < 1e-5, token=place, change=f"{change:.2g}")


@CHECKS.about("Specimen")
@torch.no_grad()
def silent_sublayers(it: Learned) -> None:
    """If all sublayers return zeros, a layer leaves the stream unchanged."""
    model = shaken(it["Specimen"]).eval()
    for layer in model.layers:
        for part in (layer.attention.output, layer.down):
            nn.init.zeros_(part.weight)
            nn.init.zeros_(part.bias)
    x = torch.randn(2, 5, 32)
    change = distance(model.layers[0](x), x)
    require(change < 1e-5, change=f"{change:.2g}")


@CHECKS.about("Specimen")
@torch.no_grad()
def right_numbers(it: Learned) -> None:
    """The logits are those of a correct decoder with the same weights."""
    model, tokens = shaken(it["Specimen"]).eval(), torch.randint(50, (3, 9))
    change = distance(model(tokens), right_logits(model, tokens))
    require(change < 1e-3, change=f"{change:.2g}")


@CHECKS.about("Specimen")
def dropout_once(it: Learned) -> None:
    """If 0.3 is asked for, 0.3 of the numbers are dropped."""
    found = dropped(it["Specimen"])
    require(abs(found - 0.3) < 0.02, found=f"{found:.2f}")


@CHECKS.about("Specimen")
@torch.no_grad()
def dropout_in_the_layers(it: Learned) -> None:
    """Dropout is still on in training, and off in evaluation."""
    model, tokens = it["Specimen"](*SIZES, 0.3), torch.randint(50, (1, 6))
    x = torch.randn(1, 6, 32)
    model.train()
    moves = distance(model.layers[0](x), model.layers[0](x)) > 1e-4
    model.eval()
    still = distance(model(tokens), model(tokens)) == 0
    require(moves and still, training=moves, evaluation=still)


@CHECKS.about("Specimen")
def the_doctor(it: Learned) -> None:
    """The doctor finds no error and no warning."""
    from clearhead.doctor import examine

    torch.manual_seed(0)
    report = examine(it["Specimen"](*SIZES, 0.1), kind="decoder", vocab_size=50, quick=True)
    cases = [each.case for each in report.findings if each.severity in ("error", "warning")]
    require(not cases, cases=", ".join(cases))
