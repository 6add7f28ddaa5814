"""From which length on the attention sublayer of one layer takes longer than the feed-forward one.

    python -m benchmarks.attention_cost

One thread, forward only, batch 1, fp32, with the parts and the initial weights of a decoder: the
attention sublayer as written (`explicit`) and with torch's fused kernel (`fused`), both causal, and
the feed-forward sublayer, without norms and residuals. They take turns, so that a disturbance of
the machine meets all of them; a time is the best of the rounds, with the slowest round beside it.
The crossing lies between two lengths, on the straight line between them in the logarithms of length
and of the ratio of times; its interval is that of the rounds. Processor time counts.

Counted, attention as written needs as many multiplications as the feed-forward network at twice the
width, and a kernel that skips what the mask forbids at four times the width.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch

from clearhead.config import ModelConfig
from clearhead.environment import keep_freed_memory
from clearhead.models import CausalLM, build_model
from clearhead.parts.view import View
from clearhead.shapes import Tensor
from clearhead.stacks.decoder import DecoderLayer
from tools.result import write_result

LENGTHS = [2**k for k in range(6, 13)]
WIDTHS = [256, 512]
LEAST_SECONDS = 0.02
"""A short sublayer is repeated until it takes this long, and its mean counts."""


def sublayers(d_model: int) -> dict[str, Callable[[Tensor], Tensor]]:
    config = ModelConfig(
        family="decoder",
        vocab_size=8,
        pad_id=None,
        d_model=d_model,
        n_layers=1,
        n_heads=d_model // 64,
        d_ff=4 * d_model,
        p_dropout=0.0,
    )
    model = build_model(config, seed=0)
    assert isinstance(model, CausalLM)
    layer = model.decoder.layers[0]
    assert isinstance(layer, DecoderLayer)
    attention, view = layer.self_attention, View()

    def attend(x: Tensor, kind: str) -> Tensor:
        attention.kind = "explicit" if kind == "explicit" else "fused"
        return attention(x, attention.keys_values_of(x), view)

    return {
        "feed_forward": layer.feed_forward,
        "explicit": lambda x: attend(x, "explicit"),
        "fused": lambda x: attend(x, "fused"),
    }


def seconds(work: Callable[[Tensor], Tensor], x: Tensor, times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        work(x)
    return (time.process_time() - start) / times


def crossing(lengths: Sequence[int], ratios: Sequence[float]) -> float | None:
    """The length from which on attention takes longer than the feed-forward sublayer."""
    points = [(math.log(n), math.log(ratio)) for n, ratio in zip(lengths, ratios)]
    for (x0, y0), (x1, y1) in reversed(list(pairwise(points))):
        if y0 < 0 <= y1:
            return math.exp(x0 + (x1 - x0) * -y0 / (y1 - y0))
    return None


@torch.no_grad()
def measure(d_model: int, rounds: int) -> dict[str, Any]:
    works = sublayers(d_model)
    inputs = [torch.randn(1, n, d_model, generator=torch.Generator().manual_seed(n))
              for n in LENGTHS]  # fmt: skip
    repeats = {  # the first call of each also warms up
        (name, n): max(1, math.ceil(LEAST_SECONDS / min(seconds(work, x, 1) for _ in range(2))))
        for n, x in zip(LENGTHS, inputs)
        for name, work in works.items()
    }
    taken: dict[str, list[list[float]]] = {name: [] for name in works}
    for _ in range(rounds):
        for each in taken.values():
            each.append([])
        for n, x in zip(LENGTHS, inputs):
            for name, work in works.items():
                taken[name][-1].append(seconds(work, x, repeats[name, n]))
    crossings: dict[str, Any] = {}
    best = {name: [min(times) for times in zip(*each)] for name, each in taken.items()}
    for name, counted in (("explicit", 2 * d_model), ("fused", 4 * d_model)):
        found = crossing(LENGTHS, [a / f for a, f in zip(best[name], best["feed_forward"])])
        of_rounds = [
            crossing(LENGTHS, [a / f for a, f in zip(*pair)])
            for pair in zip(taken[name], taken["feed_forward"])
        ]
        known = [each for each in of_rounds if each is not None]
        crossings[name] = {
            "counted": counted,
            "measured": None if found is None else round(found),
            "rounds": [round(min(known)), round(max(known))] if known else None,
            "rounds_that_cross": len(known),
        }
    return {
        "d_model": d_model,
        "milliseconds": {name: [round(1e3 * t, 3) for t in times] for name, times in best.items()},
        "slowest_milliseconds": {
            name: [round(1e3 * max(times), 3) for times in zip(*each)]
            for name, each in taken.items()
        },
        "crossing": crossings,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    kept = keep_freed_memory()
    rows = [measure(d_model, arguments.rounds) for d_model in WIDTHS]
    for row in rows:
        print(row["d_model"], row["crossing"])
    write_result(
        "attention_cost",
        {
            "rounds": arguments.rounds,
            "clock": "processor time",
            "freed_memory_kept": kept,
            "lengths": LENGTHS,
            "widths": rows,
        },
    )


if __name__ == "__main__":
    main()
