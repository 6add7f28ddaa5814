"""Arguments and outputs that authors order and name in their own ways: each is recognised, and a
bug behind it is found."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from clearhead.doctor import examine
from clearhead.doctor.recognition import recognise
from tests.doctor.specimens import healthy
from tests.doctor.specimens.healthy import LIMIT, VOCAB, WIDTH, Block, causal


class Pair(nn.Module):
    max_length = LIMIT

    def __init__(self, *, leaks=False, forgets=False):
        super().__init__()
        self.source, self.target = healthy.Embedding(), healthy.Embedding()
        self.encoder = nn.ModuleList(Block() for _ in range(2))
        self.decoder = nn.ModuleList(Block(cross=True) for _ in range(2))
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.head, self.leaks, self.forgets = nn.Linear(WIDTH, VOCAB), leaks, forgets

    def translate(self, src, tgt, lengths=None):
        allowed = None
        if lengths is not None:
            allowed = (torch.arange(src.shape[1]) < lengths[:, None])[:, None, None]
        memory, x = self.source(src), self.target(tgt)
        for block in self.encoder:
            memory, _ = block(memory, allowed)
        memory, past = self.norm(memory), causal(tgt.shape[1], tgt.shape[1])
        for block in self.decoder:
            masks = (None if self.leaks else past, memory, None if self.forgets else allowed)
            x, _ = block(x, *masks)
        return self.head(self.last(x))


class LengthsBetween(Pair):
    def forward(self, src, src_lengths, tgt):
        return self.translate(src, tgt, src_lengths)


class ByKeyword(Pair):
    def forward(self, *, src, tgt):
        return self.translate(src, tgt)


class TargetByKeyword(Pair):
    def forward(self, src, *, tgt):
        return self.translate(src, tgt)


class Decoder(healthy.Decoder):
    def __init__(self, *, leaks=False):
        super().__init__()
        self.leaks = leaks

    def allowed(self, n_queries, n_keys):
        return None if self.leaks else causal(n_queries, n_keys)


class KeywordOnly(Decoder):
    def forward(self, *, input_ids):
        return super().forward(input_ids)


class KeywordOrNothing(Decoder):
    def forward(self, *, input_ids=None, inputs_embeds=None):
        return super().forward(input_ids)


@dataclass
class Prediction:
    states: Tensor
    prediction: Tensor


class NamedPrediction(NamedTuple):
    states: Tensor
    prediction: Tensor


class InDataclass(Decoder):
    wrapped = Prediction

    def scores(self, x):
        return self.wrapped(x, super().scores(x))


class InNamedTuple(InDataclass):
    wrapped = NamedPrediction


class InDict(InDataclass):
    @staticmethod
    def wrapped(states, prediction):  # type: ignore[override]
        return {"states": states, "prediction": prediction}


def found(model: nn.Module, kind: str, *only: str) -> dict[str, str]:
    report = examine(model, kind=kind, only=only)
    assert report.not_run == []
    return {f.case: f.severity for f in report.findings}


@pytest.mark.parametrize("build", [LengthsBetween, ByKeyword, TargetByKeyword])
def test_source_and_target_are_found_wherever_they_stand(build):
    checks = ("causal", "source", "positions", "lengths")
    torch.manual_seed(0)
    assert found(build(), "encoder-decoder", *checks) == {}
    assert found(build(leaks=True), "encoder-decoder", "causal") == {"causal.leak": "error"}


def test_lengths_between_the_sequences_are_those_of_the_source():
    torch.manual_seed(0)
    report = examine(LengthsBetween(), kind="encoder-decoder", only=["padding", "pad_value"])
    assert report.recognised["source_real"] == "src_lengths=… (batch,) lengths"
    assert report.findings == ()
    cases = found(LengthsBetween(forgets=True), "encoder-decoder", "padding", "pad_value")
    assert set(cases) == {"padding.right", "pad_value.matters"}


@pytest.mark.parametrize(
    "build", [KeywordOnly, KeywordOrNothing, InDataclass, InNamedTuple, InDict]
)
def test_tokens_by_keyword_and_logits_in_a_field_are_found(build):
    torch.manual_seed(0)
    assert found(build(), "decoder", "causal", "context", "positions", "mixing") == {}
    assert found(build(leaks=True), "decoder", "causal") == {"causal.leak": "error"}


class Batch(Pair):
    """A batch as a loader of data made it"""

    def forward(self, batch, mode="train"):
        source, read = batch
        return self.translate(source, read)


class BatchWithTargets(Pair):
    def forward(self, batch, mode="train"):
        source, read, _ = batch
        return self.translate(source, read)


class WholeTarget(Pair):
    def forward(self, src, tgt):
        return self.translate(src, tgt[:, :-1])


@pytest.mark.parametrize("build", [Batch, BatchWithTargets, WholeTarget])
def test_a_batch_in_one_tuple_and_a_target_that_is_cut_inside_are_taken(build):
    torch.manual_seed(0)
    checks = ("causal", "source", "positions", "lengths", "target_leak")
    assert found(build(), "encoder-decoder", *checks) == {}
    assert found(build(leaks=True), "encoder-decoder", "causal") == {"causal.leak": "error"}


class TokensAndLengths(healthy.Encoder):
    def forward(self, batch):
        tokens, lengths = batch
        return super().forward(tokens, torch.arange(tokens.shape[1]) >= lengths[:, None])


class ForgetsLengths(healthy.Encoder):
    def forward(self, batch):
        return super().forward(batch[0])


def test_tokens_beside_their_lengths_in_one_tuple_are_taken():
    torch.manual_seed(0)
    assert found(TokensAndLengths(), "encoder", "padding", "context") == {}
    assert set(found(ForgetsLengths(), "encoder", "padding")) == {"padding.right"}


class SmallerSource(WholeTarget):
    def __init__(self):
        super().__init__()
        self.source.tokens = nn.Embedding(VOCAB - 4, WIDTH)


def test_a_source_with_a_smaller_vocabulary_is_not_taken_for_a_model_of_short_sequences():
    patient = recognise(SmallerSource(), kind="encoder-decoder")
    assert (patient.vocab_size, patient.source_vocab_size) == (VOCAB, VOCAB - 4)
    assert patient.length == 11
