"""Two plain modules say nothing of their kind: how they are called is found by trying."""

import pytest
import torch
from torch import Tensor, nn

from clearhead.doctor.diff import diff


class Mixing(nn.Module):
    """Tokens see a mean: of those before them, or of all."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.causal = causal
        self.words, self.head = nn.Embedding(31, 8), nn.Linear(8, 31)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        return self.head(x + (x.cumsum(1) if self.causal else x.sum(1, keepdim=True)))


class Masked(Mixing):
    """An argument with a default is no second sequence."""

    def __init__(self) -> None:
        super().__init__(causal=False)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        x = self.words(tokens)
        if attention_mask is not None:
            x = x * attention_mask[..., None]
        return self.head(x + x.sum(1, keepdim=True))


class Classes(Mixing):
    """One vector for a sequence."""

    def __init__(self) -> None:
        super().__init__(causal=False)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.words(tokens).mean(1))


class Two(nn.Module):
    """A source beside the tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.source, self.words = nn.Embedding(31, 8), nn.Embedding(31, 8)
        self.head = nn.Linear(8, 31)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.source(source).sum(1, keepdim=True)
        return self.head(self.words(target).cumsum(1) + memory)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (Mixing(causal=True), "decoder"),
        (Mixing(causal=False), "encoder"),
        (Masked(), "encoder"),
        (Classes(), "encoder"),
        (Two(), "encoder-decoder"),
    ],
)
def test_the_kind_is_found_by_trying(model: nn.Module, kind: str):
    report = diff(model, model)
    assert report.same
    assert report.assumed is not None and report.assumed[0] == kind
    assert "kind was not given" in str(report)


def test_a_kind_that_is_given_is_no_assumption():
    model = Mixing(causal=True)
    assert diff(model, model, kind="decoder").assumed is None
    assert diff(model, model, torch.arange(7)[None]).assumed is None


def test_the_reference_says_what_kind_it_is_and_not_a_port_that_leaks():
    report = diff(Mixing(causal=True), Mixing(causal=False))
    assert report.assumed is not None and report.assumed[0] == "decoder"
    assert not report.same
