"""Checks of exercise 17. The learner's step is compared with a step that reads the whole batch at
once."""

import itertools
import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.course.checking import Checks, FunctionProbe, Learned, distance, require

CHECKS = Checks()
TokenMicroBatch = tuple[Tensor, Tensor]
LR, NEVER = 0.5, 1e9


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def _micro_batches(*sizes: int) -> list[TokenMicroBatch]:
    return [(torch.randn(n, 4), torch.randint(3, (n,))) for n in sizes]


def _sum_loss(model: Any, batch: TokenMicroBatch) -> tuple[Tensor, int]:
    inputs, targets = batch
    return F.cross_entropy(model(inputs), targets, reduction="sum"), len(targets)


def _weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def at_once(
    model: nn.Module, batches: list[TokenMicroBatch], max_norm: float
) -> tuple[Tensor, float]:
    """Return the weights after a step of plain gradient descent on the whole batch, and the
    loss."""
    inputs, targets = (torch.cat(each) for each in zip(*batches))
    loss = F.cross_entropy(model(inputs), targets)
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    scale = min(1.0, max_norm / gradient.norm().item())
    return _weights(model) - LR * scale * gradient, loss.item()


class Counting(torch.optim.SGD):
    """An optimizer that counts its steps."""

    n_steps = 0

    def step(self, closure: Any = None) -> Any:
        """Take a step, and count it."""
        self.n_steps += 1
        return super().step(closure)


def run(
    f: Any, sizes: tuple[int, ...], max_norm: float = NEVER, stale: bool = False
) -> tuple[Tensor, float, Tensor, float, int]:
    """Return the answer's weights and loss, the right weights and loss, and the number of steps."""
    model, batches = _model(), _micro_batches(*sizes)
    wanted, loss = at_once(model, batches, max_norm)
    if stale:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
    optimizer = Counting(model.parameters(), lr=LR)
    found = f(model, _sum_loss, batches, optimizer, max_norm)
    return _weights(model), float(found), wanted, loss, optimizer.n_steps


class _Saved:
    """Numbers of a micro-batch that backward() needs, which exist for as long as the graph holds
    them."""

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = numbers


def in_memory(f: Any) -> tuple[int, int]:
    """Watch the answer read three micro-batches. Return how many of them were read before
    backward() had reached an earlier one, and how many while the graph of an earlier one was still
    in memory."""
    model, saved, reached = _model(), [], set()
    n_waiting, n_kept = 0, 0

    def watched(model: Any, batch: TokenMicroBatch) -> tuple[Tensor, int]:
        nonlocal n_waiting, n_kept
        n_waiting += len(reached) < len(saved)
        n_kept += any(each() is not None for each in itertools.chain(*saved))
        own: list[Any] = []
        number = len(saved)
        saved.append(own)

        def pack(numbers: Tensor) -> _Saved:
            kept = _Saved(numbers)
            own.append(weakref.ref(kept))
            return kept

        def unpack(kept: _Saved) -> Tensor:
            reached.add(number)
            return kept.numbers

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return _sum_loss(model, batch)

    f(model, watched, _micro_batches(2, 3, 4), Counting(model.parameters(), lr=LR), NEVER)
    return n_waiting, n_kept


def _probe(f: Any) -> object:
    found: list[Any] = []
    for sizes, max_norm, stale in (((1, 3), NEVER, True), ((2, 5, 1), 0.05, False)):
        weights, loss, *_ = run(f, sizes, max_norm, stale)
        found += [weights, round(loss, 4)]
    return found


PROBES: dict[str, FunctionProbe] = {"accumulated_step": _probe}
STEP = "accumulated_step"


@CHECKS.about(STEP)
def one_micro_batch(it: Learned) -> None:
    """With a single micro-batch, the result is that of an ordinary step."""
    found, _, wanted, _, _ = run(it[STEP], (5,))
    require(distance(found, wanted) < 1e-5, change=f"{distance(found, wanted):.2g}")


@CHECKS.about(STEP)
def one_step(it: Learned) -> None:
    """All micro-batches together make one step."""
    n_steps = run(it[STEP], (2, 3, 4))[-1]
    require(n_steps == 1, found=n_steps)


@CHECKS.about(STEP)
def as_at_once(it: Learned) -> None:
    """The weights do not depend on how the batch is split."""
    for sizes in ((4, 4), (1, 3), (1, 2, 9), (6, 1, 1, 1)):
        found, _, wanted, _, _ = run(it[STEP], sizes)
        change = distance(found, wanted)
        require(change < 1e-5, sizes=sizes, change=f"{change:.2g}")


@CHECKS.about(STEP)
def the_loss(it: Learned) -> None:
    """The returned loss is the mean over all tokens."""
    for sizes in ((1, 3), (7, 2, 1)):
        _, found, _, wanted, _ = run(it[STEP], sizes)
        require(abs(found - wanted) < 1e-4, found=f"{found:.3f}", wanted=f"{wanted:.3f}")


@CHECKS.about(STEP)
def stale_gradients(it: Learned) -> None:
    """Gradients from before the call do not count."""
    found, _, wanted, _, _ = run(it[STEP], (2, 3), stale=True)
    require(distance(found, wanted) < 1e-5, change=f"{distance(found, wanted):.2g}")


@CHECKS.about(STEP)
def an_empty_one(it: Learned) -> None:
    """A micro-batch that is all padding changes nothing, whether it is the first, the second or the
    last."""
    for sizes in ((0, 2, 3), (2, 0, 3), (2, 3, 0)):
        found, loss, wanted, mean, _ = run(it[STEP], sizes)
        change = max(distance(found, wanted), distance(torch.tensor(loss), torch.tensor(mean)))
        require(change < 1e-4, sizes=sizes, change=f"{change:.2g}")


@CHECKS.about(STEP)
def clipped(it: Learned) -> None:
    """Clipping applies to the gradient of the whole batch, after the division."""
    for sizes, max_norm in (((1, 3), 0.05), ((2, 5, 1), 0.01), ((3, 3), 0.2)):
        found, _, wanted, _, _ = run(it[STEP], sizes, max_norm)
        change = distance(found, wanted)
        require(change < 1e-5, sizes=sizes, norm=max_norm, change=f"{change:.2g}")


@CHECKS.about(STEP)
def small_gradients_stay(it: Learned) -> None:
    """Clipping makes nothing larger."""
    found, _, wanted, _, _ = run(it[STEP], (4, 2), 50.0)
    require(distance(found, wanted) < 1e-5, change=f"{distance(found, wanted):.2g}")


@CHECKS.about(STEP)
def each_read_once(it: Learned) -> None:
    """Each micro-batch is read once, in order."""
    model, read, batches = _model(), [], _micro_batches(2, 3, 1)

    def watched(model: Any, batch: TokenMicroBatch) -> tuple[Tensor, int]:
        read.append(next(i for i, each in enumerate(batches) if each is batch))
        return _sum_loss(model, batch)

    it[STEP](model, watched, batches, Counting(model.parameters(), lr=LR), NEVER)
    require(read == [0, 1, 2], found=read)


@CHECKS.about(STEP)
def memory_of_one(it: Learned) -> None:
    """Each graph is freed before the next micro-batch is read."""
    require(in_memory(it[STEP]) == (0, 0))


@CHECKS.about(STEP)
def several_steps(it: Learned) -> None:
    """Several steps in a row lower the loss, although one parameter is unused."""
    model = _model()
    model.unused = nn.Parameter(torch.ones(3))
    batches = _micro_batches(1, 5)
    optimizer = Counting((p for p in model.parameters()), lr=0.1)
    losses = [float(it[STEP](model, _sum_loss, batches, optimizer, NEVER)) for _ in range(30)]
    require(losses[-1] < 0.7 * losses[0], first=f"{losses[0]:.2f}", last=f"{losses[-1]:.2f}")
