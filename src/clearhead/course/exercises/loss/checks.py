"""Checks of exercise 8."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.course.checking import (
    Checks,
    FunctionProbe,
    Learned,
    gradient_distance,
    gradients,
    require,
    require_unchanged,
    scattered,
)
from clearhead.course.exercises.loss import solution

CHECKS = Checks()
VOCAB = 9
TOKENS = torch.tensor([[1, 5, 6, 7, 2, 0], [1, 8, 2, 0, 0, 0]])
TARGETS = TOKENS[:, 1:]  # six of them are real
OTHER_PADDING = torch.tensor([[5, 0, 7, 2, 3], [0, 2, 3, 3, 3]])  # id 3; 0 is a word here


def _logits() -> Tensor:
    return torch.randn(2, 5, VOCAB)


def _certain() -> Tensor:
    """Return logits of ±200, with which the probabilities of most tokens are 0 in single
    precision."""
    return 100.0 * torch.randint(-2, 3, (2, 5, VOCAB))


def probe_certain(f: Any) -> object:
    """Call the answer with logits for which log(softmax) differs from log_softmax."""
    return [torch.as_tensor(x) for x in f(_certain(), TARGETS, 0, 0.1)]


def probe_scattered(f: Any) -> object:
    """Call the answer with logits whose order in memory is not that of their axes."""
    return [torch.as_tensor(x) for x in f(scattered(_logits()), TARGETS, 0, 0.1)]


def probe_gradients(f: Any) -> object:
    """Return the gradients with respect to the logits."""
    return gradients(lambda logits: f(logits, TARGETS, 0, 0.1)[0], _logits())


PROBES: dict[str, FunctionProbe] = {
    "shift": lambda f: list(f(torch.randint(1, 9, (2, 6)))),
    "loss": lambda f: [
        torch.as_tensor(x)
        for targets, pad_id in ((TARGETS, 0), (OTHER_PADDING, 3), (torch.zeros_like(TARGETS), 0))
        for x in f(_logits(), targets, pad_id, 0.1)
    ],
}


def _nats(it: Learned, logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> float:
    return float(it["loss"](logits, targets, 0, smoothing)[0])


def _count(it: Learned, logits: Tensor, targets: Tensor) -> int:
    return int(it["loss"](logits, targets, 0, 0.0)[1])


@CHECKS.about("shift")
def shapes(it: Learned) -> None:
    """Inputs and targets are one token shorter than the text."""
    inputs, targets = it["shift"](TOKENS)
    found = f"{tuple(inputs.shape)}, {tuple(targets.shape)}"
    require(inputs.shape == targets.shape == (2, 5), found=found)


@CHECKS.about("shift")
def one_ahead(it: Learned) -> None:
    """Target t is input t + 1."""
    for tokens in (TOKENS, torch.randint(0, 9, (3, 4)), torch.randint(0, 9, (1, 2))):
        before = tokens.clone()
        inputs, targets = it["shift"](tokens)
        holds = torch.equal(inputs, before[:, :-1]) and torch.equal(targets, before[:, 1:])
        require(holds, inputs=inputs[0].tolist(), targets=targets[0].tolist())


@CHECKS.about("loss")
def inputs_unchanged(it: Learned) -> None:
    """The inputs stay unchanged: `targets[targets == pad_id] = …` would overwrite the caller's
    tensor."""
    require_unchanged(lambda *given: it["loss"](*given, 0, 0.1), _logits(), TARGETS.clone())


@CHECKS.about("loss")
def count(it: Learned) -> None:
    """Only real targets count."""
    found = _count(it, _logits(), TARGETS)
    require(found == 6, found=found)


@CHECKS.about("loss")
def count_is_a_tensor(it: Learned) -> None:
    """The count is a tensor like the sum: the counts of pieces can then be added on the device,
    without waiting for it."""
    found = it["loss"](_logits(), TARGETS, 0, 0.0)[1]
    require(isinstance(found, Tensor) and found.shape == (), found=type(found).__name__)


@CHECKS.about("loss")
def uniform(it: Learned) -> None:
    """With equal logits, each target costs ln V."""
    each = _nats(it, torch.zeros(2, 5, VOCAB), TARGETS) / 6
    require(abs(each - math.log(VOCAB)) < 1e-4, each=f"{each:.2f}")


@CHECKS.about("loss")
def sure_and_right(it: Learned) -> None:
    """A prediction that is certain and right costs nothing."""
    # Padding is predicted with certainty, and wrongly: that must cost nothing either.
    wanted = torch.where(TARGETS == 0, 3, TARGETS)
    found = _nats(it, 50.0 * F.one_hot(wanted, VOCAB), TARGETS)
    require(found < 1e-3, found=f"{found:.2f}")


@CHECKS.about("loss")
def more_padding(it: Learned) -> None:
    """More padding changes nothing."""
    logits = _logits()
    longer = torch.cat((logits, torch.randn(2, 3, VOCAB)), dim=1)
    change = _nats(it, longer, F.pad(TARGETS, (0, 3))) - _nats(it, logits, TARGETS)
    require(abs(change) < 1e-3, change=f"{change:.2f}")


@CHECKS.about("loss")
def padding_on_the_left(it: Learned) -> None:
    """Padding on the left costs as much as padding on the right."""
    logits = _logits()
    right = _nats(it, logits, TARGETS), _count(it, logits, TARGETS)
    left = _nats(it, logits.flip(1), TARGETS.flip(1)), _count(it, logits.flip(1), TARGETS.flip(1))
    texts = [f"{nats:.2f}, {count}" for nats, count in (left, right)]
    holds = abs(left[0] - right[0]) < 1e-3 and left[1] == right[1]
    require(holds, found=texts[0], wanted=texts[1])


@CHECKS.about("loss")
def halves_add_up(it: Learned) -> None:
    """The losses of a batch's two halves add up to that of the batch."""
    logits = _logits()
    parts = sum(_nats(it, logits[i : i + 1], TARGETS[i : i + 1]) for i in range(2))
    whole = _nats(it, logits, TARGETS)
    require(abs(parts - whole) < 1e-3, parts=f"{parts:.2f}", whole=f"{whole:.2f}")


@CHECKS.about("loss")
def smoothing(it: Learned) -> None:
    """Label smoothing agrees with torch."""
    logits = _logits()
    theirs = F.cross_entropy(
        logits.flatten(0, 1),
        TARGETS.flatten(),
        ignore_index=0,
        label_smoothing=0.1,
        reduction="sum",
    )
    found = _nats(it, logits, TARGETS, 0.1)
    require(abs(found - float(theirs)) < 1e-3, found=f"{found:.3f}", wanted=f"{theirs:.3f}")


@CHECKS.about("loss")
def other_padding(it: Learned) -> None:
    """Padding is what pad_id says; token 0 may be a word."""
    logits = _logits()
    nats, n = it["loss"](logits, OTHER_PADDING, 3, 0.0)
    log_probs = logits.log_softmax(-1).gather(-1, OTHER_PADDING[..., None])[..., 0]
    wanted = -log_probs[OTHER_PADDING != 3].sum()
    found = f"{float(nats):.2f}, {int(n)}"
    holds = abs(float(nats) - float(wanted)) < 1e-3 and int(n) == 6
    require(holds, found=found, wanted=f"{wanted:.2f}, 6")


@CHECKS.about("loss")
def any_memory(it: Learned) -> None:
    """Logits that are not contiguous, such as logits[:, :-1], give the right loss."""
    logits = _logits()
    found, wanted = (
        _nats(it, x, TARGETS, 0.1)
        for x in (scattered(torch.cat((logits, logits), dim=1))[:, :5], logits)
    )
    require(abs(found - wanted) < 1e-3, found=f"{found:.3f}", wanted=f"{wanted:.3f}")


@CHECKS.about("loss")
def no_target_left(it: Learned) -> None:
    """Without any real target, the loss is zero and finite."""
    nothing = torch.zeros_like(TARGETS)
    found, n = _nats(it, _logits(), nothing), _count(it, _logits(), nothing)
    require(math.isfinite(found) and abs(found) < 1e-6 and n == 0, found=f"{found}, {n}")


@CHECKS.about("loss")
def far_apart(it: Learned) -> None:
    """Logits of ±200 with smoothing give the right loss."""
    logits = _certain()
    found = _nats(it, logits, TARGETS, 0.1)
    wanted = float(solution.loss(logits, TARGETS, 0, 0.1)[0])
    require(abs(found - wanted) < 0.5, found=f"{found:.1f}", wanted=f"{wanted:.1f}")


@CHECKS.about("loss")
def has_a_gradient(it: Learned) -> None:
    """The loss has a gradient with respect to the logits."""
    total = it["loss"](_logits().requires_grad_() * 1, TARGETS, 0, 0.0)[0]
    require(isinstance(total, Tensor) and total.requires_grad)


@CHECKS.about("loss")
def gradient(it: Learned) -> None:
    """The gradient agrees with torch's, at other sizes too."""
    for targets, pad_id in ((TARGETS, 0), (OTHER_PADDING, 3), (TARGETS[:1, :3], 0)):
        change = gradient_distance(
            lambda logits, t=targets, p=pad_id: it["loss"](logits, t, p, 0.1)[0],
            lambda logits, t=targets, p=pad_id: solution.loss(logits, t, p, 0.1)[0],
            torch.randn(*targets.shape, VOCAB).double(),
        )
        require(change < 1e-4, change=f"{change:.2g}")
