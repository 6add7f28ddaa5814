"""The gradient is compared with the slope of the loss at one point, with a step that fits."""

import pytest
import torch
from torch import nn

from clearhead.doctor import examine
from tests.doctor.specimens import healthy


class Torch(nn.Module):
    """ReLU, norms after the residual, dropout: a loss with many kinks."""

    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(40, 32), nn.Embedding(40, 32)
        self.places, self.head = nn.Embedding(32, 32), nn.Linear(32, 40)
        self.model = nn.Transformer(32, 4, 2, 2, 64, 0.1, batch_first=True)

    def forward(self, src, tgt):
        n = tgt.shape[1]
        mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        x, y = (
            6 * table(tokens) + self.places(torch.arange(tokens.shape[1]))
            for table, tokens in ((self.source, src), (self.target, tgt))
        )
        return self.head(self.model(x, y, tgt_mask=mask))


# With these two seeds the step back once ended at another point than the step forward began at.
@pytest.mark.parametrize("seed", [12, 19])
def test_the_slope_of_a_loss_with_kinks_is_taken_where_the_gradient_is(seed):
    torch.manual_seed(seed)
    report = examine(Torch(), kind="encoder-decoder", only=["gradient_value"], seed=seed)
    assert report.healthy, report.findings


class SingleNorm(nn.Module):
    """Computes in single precision always, as Llama's norm does."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(dim=-1, keepdim=True) + 1e-5)
        return y.type_as(x) * self.weight


class SingleBlock(healthy.Block):
    def make_norm(self, width):
        return SingleNorm(width)


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 0.5 * gradient


class HalfOfTheTable(healthy.Embedding):
    def forward(self, tokens, start=0, mask=None):
        return Half.apply(super().forward(tokens, start, mask))


@pytest.mark.parametrize("seed", range(3))
def test_single_precision_inside_forward_is_no_wrong_gradient(seed):
    torch.manual_seed(seed)
    model = healthy.Decoder(block=SingleBlock)
    report = examine(model, kind="decoder", only=["gradient_value"], seed=seed)
    assert report.healthy, report.findings


def test_a_wrong_gradient_is_found_beside_single_precision():
    torch.manual_seed(0)
    model = healthy.Decoder(block=SingleBlock, embedding=HalfOfTheTable)
    report = examine(model, kind="decoder", only=["gradient_value"])
    assert [finding.case for finding in report.findings] == ["gradient_value.differs"]
