"""The loss is a sum over real targets."""

import math

import torch

from clearhead.training.loss import cross_entropy


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
