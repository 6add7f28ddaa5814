"""练习 16，参考答案"""

from collections.abc import Callable

import torch
from torch import Tensor

BeamTokens = tuple[int, ...]


def extend(scores: Tensor, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """展平后只做一次 topk。"""
    table = (scores[:, None] + log_probs).flatten()
    best, index = table.topk(min(width, len(table)))
    return best, index // log_probs.shape[1], index % log_probs.shape[1]


def search(
    next_log_probs: Callable[[BeamTokens], Tensor],
    *,
    width: int,
    eos: int,
    max_new: int,
    alpha: float,
) -> tuple[BeamTokens, float]:
    """写完的文本按原样参加比较。"""
    beam: list[tuple[BeamTokens, float]] = [((), 0.0)]
    for _ in range(max_new):
        finished = [text for text in beam if text[0][-1:] == (eos,)]
        growing = [text for text in beam if text[0][-1:] != (eos,)]
        if not growing:
            break
        scores = torch.tensor([score for _, score in growing], dtype=torch.float64)
        log_probs = torch.stack([next_log_probs(tokens) for tokens, _ in growing]).double()
        found = zip(*(each.tolist() for each in extend(scores, log_probs, width)))
        extended = [((*growing[parent][0], token), score) for score, parent, token in found]
        beam = sorted(finished + extended, key=lambda text: -text[1])[:width]
    return max(beam, key=lambda text: text[1] / max(len(text[0]), 1) ** alpha)
