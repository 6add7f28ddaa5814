"""The loss is a sum over real targets."""

import math
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import (
    Batch,
    LabelledBatch,
    MaskedBatch,
    PairBatch,
    TokenBatch,
    split_rows,
)
from clearhead.models import build_model
from clearhead.training.loss import Objective, cross_entropy


def test_the_loss_is_the_sum_over_real_targets():
    logits, targets = torch.randn(2, 5, 7), torch.randint(1, 7, (2, 5))
    targets[0, 3:] = 0
    nats, n_targets = cross_entropy(logits, targets, ignore_id=0)
    by_hand = 0.0
    for row in range(2):
        for place in range(5):
            if targets[row, place]:
                by_hand -= logits[row, place].log_softmax(-1)[targets[row, place]].item()
    assert n_targets == 8
    assert math.isclose(nats.item(), by_hand, rel_tol=1e-5)


def test_an_ignored_target_gets_no_gradient():
    logits = torch.randn(1, 3, 7, requires_grad=True)
    cross_entropy(logits, torch.tensor([[4, 0, 2]]), ignore_id=0).nats.backward()
    assert (logits.grad[0, 1] == 0).all()
    assert (logits.grad[0, 0] != 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_sum_of_many_nats_keeps_its_digits_in_half_precision(dtype):
    logits, targets = torch.randn(8, 1024, 300).to(dtype), torch.randint(1, 300, (8, 1024))
    exact = cross_entropy(logits.double(), targets, ignore_id=0).nats.item()
    assert cross_entropy(logits * 1, targets, ignore_id=0).nats.item() == pytest.approx(exact)


def test_label_smoothing_is_a_mixture_with_the_uniform_distribution():
    logits, targets = torch.randn(2, 4, 9).double(), torch.randint(1, 9, (2, 4))
    targets[1, 2:] = 0
    found = cross_entropy(logits, targets, ignore_id=0, label_smoothing=0.3).nats
    log_p = logits.log_softmax(-1)
    wanted = torch.zeros((), dtype=torch.float64)
    for row, place in (targets != 0).nonzero().tolist():
        mixture = torch.full((9,), 0.3 / 9, dtype=torch.float64)
        mixture[targets[row, place]] += 0.7
        wanted -= (mixture * log_p[row, place]).sum()
    assert found.item() == pytest.approx(wanted.item(), rel=1e-12)


def test_z_loss_adds_the_square_of_log_z_for_real_targets():
    logits, targets = torch.randn(2, 4, 9).double(), torch.randint(1, 9, (2, 4))
    targets[0, 1:] = 0
    plain = cross_entropy(logits, targets, ignore_id=0).nats
    found = cross_entropy(logits, targets, ignore_id=0, z_loss=0.01).nats
    squares = logits.exp().sum(-1).log() ** 2
    assert found.item() == pytest.approx((plain + 0.01 * squares[targets != 0].sum()).item())


@pytest.mark.parametrize("chunk", [1, 5, 1000])
@pytest.mark.parametrize("task", ["pairs", "text", "packed", "masked"])
def test_a_loss_in_chunks_is_the_same_and_so_are_its_gradients(task: str, chunk: int):
    whole, chunked = (objective(task, loss_chunk=each) for each in (None, chunk))
    batch = a_batch(task)
    losses = [module(batch) for module in (whole, chunked)]
    for loss in losses:
        loss.backward()
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-12)
    for one, other in zip(whole.parameters(), chunked.parameters()):
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-10, atol=1e-12)


def test_logits_in_chunks_never_stand_in_memory_together():
    """The largest tensor made on the way is a chunk's, not the batch's."""
    largest = {chunk: largest_tensor(objective("pairs", loss_chunk=chunk)) for chunk in (None, 3)}
    n_places = a_batch("pairs").target_output.numel()
    assert largest[None] == n_places * VOCAB
    assert largest[3] == n_places * 12  # what the layers pass on


def test_what_validation_measures_is_neither_smoothed_nor_weighted():
    module = objective("pairs", label_smoothing=0.2, z_loss=0.1)
    plain = objective("pairs")
    batch = a_batch("pairs")
    assert module(batch, smooth=False).item() == plain(batch).item() != module(batch).item()


@pytest.mark.parametrize("task", ["pairs", "text", "packed", "masked"])
def test_a_batch_without_rows_has_a_loss_of_zero_and_reaches_every_parameter(task: str):
    """A rank that got no rows must stay in step with the others."""
    module = objective(task)
    empty = split_rows(a_batch(task), 1000)[999]
    loss = module(empty)
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is not None and not p.grad.any() for p in module.parameters())


def test_packed_documents_do_not_see_each_other():
    batch, module = a_batch("packed"), objective("packed")
    first = batch.documents[0] == 0
    changed = replace(batch, inputs=torch.where(batch.documents == 0, 5, batch.inputs))
    targets = batch.targets.clone()
    targets[0, first] = -100
    targets[1:] = -100
    one, other = (module(replace(each, targets=targets)) for each in (batch, changed))
    assert one.item() == other.item() > 0


def test_padding_behind_a_labelled_text_changes_nothing():
    module = objective("masked")
    row = torch.tensor([[7, 9, 3, 2]])
    targets = torch.tensor([[-100, -100, 5, -100]])
    samples = ((0,),)
    alone = LabelledBatch(inputs=row, targets=targets, samples=samples)
    padded = LabelledBatch(
        inputs=torch.cat([row, torch.zeros(1, 3, dtype=torch.long)], 1),
        targets=torch.cat([targets, torch.full((1, 3), -100)], 1),
        samples=samples,
    )
    assert module(padded).item() == pytest.approx(module(alone).item(), rel=1e-12)


VOCAB = 23
FAMILY = {"pairs": "encoder-decoder", "text": "decoder", "packed": "decoder", "masked": "encoder"}


def objective(task: str, **settings) -> Objective:
    config = ModelConfig(
        family=FAMILY[task],
        vocab_size=VOCAB,
        d_model=12,
        n_heads=2,
        n_layers=1,
        d_ff=10,
        p_dropout=0.0,
        p_attention_dropout=0.0,
    )
    model = build_model(config).double()
    return Objective(model, TrainConfig(**settings), packed=task == "packed")


def a_batch(task: str) -> Batch:
    generator = torch.Generator().manual_seed(3)
    tokens, other = torch.randint(3, VOCAB, (2, 3, 8), generator=generator)
    samples = ((0,), (1,), (2,))
    if task == "pairs":
        tokens[1, 6:] = other[1, 5:] = 0
        return PairBatch(source=tokens, target_input=other.roll(1, 1), target_output=other,
                         samples=samples)  # fmt: skip
    if task == "masked":
        targets = torch.where(torch.rand(3, 8, generator=generator) < 0.3, other, -100)
        return MaskedBatch(inputs=tokens, targets=targets, samples=samples)
    documents = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2]).expand(3, 8)
    return TokenBatch(inputs=tokens, targets=other, documents=documents, samples=samples)


class _Largest(TorchDispatchMode):
    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.size = max(self.size, tensor.numel())
        return result


def largest_tensor(module: Objective) -> int:
    with _Largest() as mode:
        module(a_batch("pairs")).backward()
    return mode.size
