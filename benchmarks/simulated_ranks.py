"""One sharded training step of a 6.7 B-parameter decoder as the first of 1,024 ranks: torch's fake
backend and fake tensors stand for the other ranks and for memory, all else is the real code. What
this rank would hold is compared with the arithmetic.

    python -m benchmarks.simulated_ranks
"""

import argparse
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from clearhead.config import TrainConfig
from clearhead.data.batches import TokenBatch
from clearhead.models import build_model, count_parameters, preset
from clearhead.training.distributed import Ranks, make_meshes, shard
from clearhead.training.loss import Objective
from clearhead.training.optimizer import make_optimizers
from tools.result import write_result

CONFIG = preset("llama-2-7b")


def bytes_held(tensors: list[Tensor]) -> int:
    local = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    return sum(tensor.numel() * tensor.element_size() for tensor in local)


def one_step(world: int, rows: int) -> dict[str, Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    config = TrainConfig(parallel="fsdp", precision="bf16", loss_chunk=1024)
    ranks = Ranks(0, world, torch.device("cpu"), sharded=True)
    meshes = make_meshes(config, ranks)
    started = time.perf_counter()
    with FakeTensorMode():
        objective = Objective(build_model(CONFIG, device="meta"), config)
        shard(objective, config, meshes)
        objective.to_empty(device="cpu")
        optimizers = make_optimizers(objective, config)
        tokens = torch.zeros(rows, CONFIG.max_length, dtype=torch.long)
        batch = TokenBatch(inputs=tokens, targets=tokens, documents=tokens, samples=())
        (objective(batch) / tokens.numel()).backward()
        gradients = [p.grad for p in objective.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        nn.utils.clip_grads_with_norm_(objective.parameters(), 1.0, norm)
        for optimizer in optimizers:
            optimizer.step()
        states = [state for optimizer in optimizers for state in optimizer.state.values()]
        held = {
            "parameters": bytes_held(list(objective.parameters())),
            "gradients": bytes_held(gradients),
            "optimizer": bytes_held([t for s in states for t in s.values() if t.dim() > 0]),
        }
    seconds = time.perf_counter() - started
    dist.destroy_process_group()
    return {"seconds": round(seconds, 1), "bytes_on_this_rank": held}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=2, help="sequences on each rank")
    arguments = parser.parse_args()
    model = build_model(CONFIG, device="meta")
    total, world = count_parameters(model).total, arguments.world
    found = one_step(world, arguments.rows)
    # A tensor is dealt out by rows, and the first rank gets the one more where they do not divide:
    # 11,008 rows on 1,024 ranks are 11 for it. fp32; bf16 is what a gathered layer computes in.
    share = sum(4 * -(-p.shape[0] // world) * (p.numel() // p.shape[0]) for p in model.parameters())
    wanted = {"parameters": share, "gradients": share, "optimizer": 2 * share}
    ratios = {
        name: round(size / wanted[name], 5) for name, size in found["bytes_on_this_rank"].items()
    }
    print(f"{total:,} parameters, {world} ranks: one step in {found['seconds']} s")
    for name, size in found["bytes_on_this_rank"].items():
        print(f"{name:<12}{size:>14,} bytes, {ratios[name]:.5f} of the arithmetic")
    print(f"{'':<12}{4 * total / world:>14,.0f} bytes would be an even share of the parameters")
    measured = {
        "parameters": total,
        "world": world,
        **found,
        "over_arithmetic": ratios,
        "over_even_share": round(found["bytes_on_this_rank"]["parameters"] * world / 4 / total, 5),
    }
    print("written:", write_result("simulated_ranks", measured).name)


if __name__ == "__main__":
    main()
