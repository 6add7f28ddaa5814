"""What torch.compile makes of the layers of a model."""

import json
import subprocess
import sys

import pytest

from tests.training.test_kill import ENVIRONMENT

COUNT_GRAPHS = """
import json
import torch
import torch.distributed as dist
from torch._dynamo.utils import counters
from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import TokenBatch
from clearhead.training.distributed import Ranks, build_objective

real = torch.compile
torch.compile = lambda function, **settings: real(function, **settings, backend="eager")
model = ModelConfig(
    family="decoder", d_model=12, n_layers=3, n_heads=2, d_ff=20, vocab_size=23, max_length=16,
    p_dropout=0.0,
)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for settings in ({}, {"recompute": True}, {"parallel": "fsdp"}, {"compile": False}):
    torch._dynamo.reset()
    counters.clear()
    config = TrainConfig(**{"compile": True, **settings})
    ranks = Ranks(sharded=config.parallel == "fsdp")
    objective = build_objective(model, config, ranks, packed=False)
    for length in (5, 7):
        tokens = torch.arange(3 * length).view(3, length)
        batch = TokenBatch(
            inputs=tokens, targets=tokens, documents=tokens * 0, samples=((0,),) * 3
        )
        objective(batch).backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in objective.parameters()])
    norm = norm.full_tensor() if ranks.sharded else norm
    graphs, breaks = counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())
    print(json.dumps([graphs, breaks, norm.item()]))
"""


@pytest.mark.slow
def test_each_layer_is_one_graph_also_when_it_is_recomputed_or_sharded():
    """In a process of its own: the checks of shapes in these tests cannot be compiled."""
    process = subprocess.run(
        [sys.executable, "-c", COUNT_GRAPHS], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    *compiled, plain = map(json.loads, process.stdout.splitlines())
    assert plain[0] == 0 and len(compiled) == 3
    for n_graphs, n_breaks, norm in compiled:
        assert (n_graphs, n_breaks) == (1, 0), "all layers share a graph without a break"
        assert norm == pytest.approx(plain[2])
