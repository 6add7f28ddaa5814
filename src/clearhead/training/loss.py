"""The loss as a sum: whoever divides it does so once, by all the target tokens of a step."""

from typing import NamedTuple

import torch.nn.functional as F

from clearhead.shapes import Float, Int, Logits, Tensor, Tokens


class SummedLoss(NamedTuple):
    """Nats over the real targets, and how many targets those were (0 is allowed: the sum is 0)."""

    nats: Float[Tensor, ""]
    n_targets: Int[Tensor, ""]


def cross_entropy(logits: Logits, targets: Tokens, *, ignore_id: int) -> SummedLoss:
    """Minus the log-probability of each target, over the targets that are not `ignore_id`.

    Averages of averages are wrong wherever batches differ in length: sum over micro-batches and
    ranks, then divide once.
    """
    nats = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=ignore_id, reduction="sum"
    )
    return SummedLoss(nats, (targets != ignore_id).sum())
