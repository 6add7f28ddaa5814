"""Makes the optimizers, which are torch's (Muon with products of its own on the CPU), with weight
decay on matrices only."""

from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import nn
from torch.optim import Optimizer

from clearhead.config.train import TrainConfig
from clearhead.training.muon import Muon


class ParameterGroup(TypedDict):
    """Parameters that share a weight decay, as torch's optimizers take them."""

    params: list[nn.Parameter]
    weight_decay: float


def parameter_groups(
    model: nn.Module, weight_decay: float, *, without: Sequence[torch.Tensor] = ()
) -> list[ParameterGroup]:
    """Group the parameters. Matrices get weight decay; biases and norms do not. Each parameter is
    in exactly one group, once, whatever number of names it has."""
    left_out = {id(parameter) for parameter in without}
    parameters = [p for p in model.parameters() if p.requires_grad and id(p) not in left_out]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def adamw(
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float = 0.1,
    betas: tuple[float, float] = (0.9, 0.95),
    without: Sequence[torch.Tensor] = (),
) -> torch.optim.AdamW:
    """Make AdamW, with the fused kernel if the device has one, as CPUs and GPUs do."""
    groups = [dict(group) for group in parameter_groups(model, weight_decay, without=without)]
    fused = all(p.device.type in ("cpu", "cuda", "mps") for p in model.parameters())
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=fused)


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """Make the optimizers of the configuration with their state allocated, so that a checkpoint
    before the first update has the same tensors as any other."""
    optimizers = _optimizers(model, config)
    for optimizer in optimizers:
        _reserve_state(optimizer)
    return optimizers


@torch.no_grad()
def _reserve_state(optimizer: Optimizer) -> None:
    """Allocate the state, which torch would do at the first step: take a step that changes nothing,
    and set its count back."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    for group, rate in zip(optimizer.param_groups, rates):
        group["lr"] = rate
    for state in optimizer.state.values():
        if "step" in state:
            state["step"].zero_()


def _optimizers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """Return one optimizer, or Muon and AdamW side by side."""
    lr, decay, betas = config.lr, config.weight_decay, (config.beta1, config.beta2)
    match config.optimizer:
        case "adamw":
            return [adamw(model, lr=lr, weight_decay=decay, betas=betas)]
        case "adafactor":
            groups = [dict(group) for group in parameter_groups(model, decay)]
            return [torch.optim.Adafactor(groups, lr=lr)]
        case "muon":
            # Muon is for matrices that map a vector to a vector, which tables of vectors do not.
            # Its step is scaled to the size of AdamW's, so that one learning rate serves both.
            linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
            matrices = [linear.weight for linear in linears if linear.weight.requires_grad]
            muon = Muon(matrices, lr=lr, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
            others = adamw(model, lr=lr, weight_decay=decay, betas=betas, without=matrices)
            return [muon, others]


def set_learning_rate(optimizers: Sequence[Optimizer], lr: float) -> None:
    """Set the learning rate of all groups of all optimizers."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr
