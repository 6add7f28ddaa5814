"""The models and batches on which the checks run: tiny, of every family, and the same on every
device."""

import torch
from torch import Tensor

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import IGNORED, Batch, MaskedBatch, PairBatch, TokenBatch
from clearhead.models import build_model
from clearhead.training.loss import Objective

FAMILIES = {
    "encoder-decoder": ModelConfig(
        vocab_size=53, d_model=32, n_layers=2, n_heads=4, d_ff=80, max_length=24, p_dropout=0.0
    ),
    "decoder": ModelConfig(
        family="decoder", vocab_size=61, d_model=48, n_layers=2, n_heads=6, n_kv_heads=2, d_ff=72,
        max_length=24, p_dropout=0.0, positions="rotary", norm="rms", feed_forward="swiglu",
        bias=False, tie_output=False,
    ),
    "encoder": ModelConfig(
        family="encoder", vocab_size=59, d_model=40, n_layers=2, n_heads=5, d_ff=96, max_length=24,
        p_dropout=0.0, positions="learned", norm_placement="post",
    ),
}  # fmt: skip
PAD, WIDTH = 0, 13


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Return normally distributed numbers, drawn on the CPU."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tokens(vocab_size: int, *shape: int, seed: int = 0) -> Tensor:
    """Return random tokens, without the special ones."""
    return torch.randint(3, vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def small_objective(
    model: ModelConfig,
    device: torch.device,
    *,
    dtype: torch.dtype | None = None,
    half: torch.dtype | None = None,
) -> Objective:
    """Make a small objective whose weights are drawn on the CPU, so that they are the same on every
    device."""
    objective = Objective(build_model(model, seed=3), TrainConfig(label_smoothing=0.1), half=half)
    return objective.to(device, dtype)


def small_batch(model: ModelConfig, device: torch.device) -> Batch:
    """Make a batch of four rows, some of them padded."""
    first, second = (tokens(model.output_vocab_size, 4, WIDTH, seed=seed) for seed in (1, 2))
    samples = ((0,),) * 4
    match model.family:
        case "encoder-decoder":
            first[1, 8:] = second[2, 5:] = PAD
            following = second.roll(-1, 1)
            following[:, -1] = PAD
            inputs, targets = second.to(device), following.to(device)
            return PairBatch(
                source=first.to(device), target_input=inputs, target_output=targets, samples=samples
            )
        case "decoder":
            inputs, targets = first.to(device), second.to(device)
            documents = torch.zeros_like(inputs)
            return TokenBatch(inputs=inputs, targets=targets, documents=documents, samples=samples)
        case "encoder":
            second[:, ::3] = IGNORED
            return MaskedBatch(inputs=first.to(device), targets=second.to(device), samples=samples)


def loss_and_gradients(objective: Objective, batch: Batch) -> dict[str, Tensor]:
    """Return the loss and the gradients by name, on the CPU and in fp64."""
    objective.zero_grad()
    loss = objective(batch)
    loss.backward()
    tensors = {"loss": loss.detach()}
    tensors |= {name: p.grad for name, p in objective.named_parameters() if p.grad is not None}
    return {name: tensor.cpu().double() for name, tensor in tensors.items()}
