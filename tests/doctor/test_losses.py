"""Each convention of computing a loss has a model that follows it, and one whose loss is wrong."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearhead.doctor import examine, losses
from clearhead.doctor.recognition import recognise
from tests.doctor.specimens import healthy
from tests.doctor.specimens.healthy import PAD, WIDTH

N_CLASSES, MASK = 5, 3


class OnlyALoss(healthy.Decoder):
    """The targets are the tokens."""

    moved_again = 0

    def forward(self, tokens):
        logits, targets = super().forward(tokens[:, :-1]), tokens[:, 1:]
        n = targets.shape[1] - self.moved_again
        return F.cross_entropy(logits[:, :n].flatten(0, 1), targets[:, -n:].flatten())


class OfTheTokenAfter(OnlyALoss):
    moved_again = 1


class CutsItsTarget(healthy.Seq2Seq):
    """The last token is a label only; padding does not count."""

    pad_id, ignored = PAD, PAD

    def forward(self, source, target):
        logits = super().forward(source, target[:, :-1])
        flat = logits.flatten(0, 1), target[:, 1:].flatten()
        return logits, F.cross_entropy(*flat, ignore_index=self.ignored)


class CountsPadding(CutsItsTarget):
    ignored = -100


class ReadsItsLabels(healthy.Seq2Seq):
    """The decoder reads the labels, moved by one."""

    def filled(self, labels):
        return labels.masked_fill(labels == -100, PAD)

    def forward(self, source, labels):
        read = F.pad(self.filled(labels)[:, :-1], (1, 0), value=1)
        logits = super().forward(source, read)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


class WritesIntoItsLabels(ReadsItsLabels):
    def filled(self, labels):
        return labels.masked_fill_(labels == -100, PAD)


class Classes(healthy.Encoder):
    """One of five classes for a sequence."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, N_CLASSES)

    def scores(self, logits):
        return logits

    def forward(self, tokens, labels=None):
        logits = super().forward(tokens)[:, 0]
        if labels is None:
            return logits
        return F.cross_entropy(self.scores(logits), labels), logits


class OfProbabilities(Classes):
    def scores(self, logits):
        return logits.softmax(dim=-1)


class FillsIn(healthy.Encoder):
    """What stands in place of a token is predicted, and nothing else: it may see everything."""

    def places(self, tokens):
        return tokens == MASK

    def forward(self, tokens, labels=None):
        logits = super().forward(tokens)
        if labels is None:
            return logits
        places = self.places(tokens)
        return F.cross_entropy(logits[places], labels[places], reduction="sum"), logits


class SeesWhatItPredicts(FillsIn):
    def places(self, tokens):
        return torch.ones_like(tokens, dtype=torch.bool)


class ShiftedTwice(healthy.LabelDecoder):
    shift = 2


# By convention: a model, its kind, what the report calls its loss, and one with a wrong loss.
FOLLOWS = {
    "OnlyALoss": (OnlyALoss, "decoder", "loss = model(…)", OfTheTokenAfter, "loss_value.shift_2"),
    "LossOfItsTarget": (
        CutsItsTarget,
        "encoder-decoder",
        "loss = model(…)",
        CountsPadding,
        "ignored_targets.counted",
    ),
    "LabelsThatAreRead": (
        ReadsItsLabels,
        "encoder-decoder",
        None,
        WritesIntoItsLabels,
        "determinism.input",
    ),
    "LossOfClasses": (
        Classes,
        "encoder",
        "loss = model(…, labels=…)",
        OfProbabilities,
        "loss_value.probabilities",
    ),
    "LossOfFilledTokens": (
        FillsIn,
        "decoder",
        f"loss = model(…, labels=…), where tokens are {MASK}",
        SeesWhatItPredicts,
        "causal.leak",
    ),
    "LossOfTokens": (
        healthy.LabelDecoder,
        "decoder",
        "loss = model(…, labels=…), -100 is ignored",
        ShiftedTwice,
        "loss_value.shift_2",
    ),
}


def test_each_convention_has_a_model():
    assert [type(convention).__name__ for convention in losses.CONVENTIONS] == list(FOLLOWS)


@pytest.mark.parametrize("name", FOLLOWS)
def test_a_model_that_follows_a_convention_is_understood_by_it_alone(name, monkeypatch):
    model, kind, shown, *_ = FOLLOWS[name]
    torch.manual_seed(0)
    known = recognise(model(), kind=kind)
    assert known.recognised.get("loss") == shown
    (convention,) = (c for c in losses.CONVENTIONS if type(c).__name__ == name)
    monkeypatch.setattr(losses, "CONVENTIONS", (convention,))
    alone = recognise(model(), kind=kind)
    assert alone.recognised == known.recognised
    assert (alone.calls.labelled is None) == (known.calls.labelled is None)


@pytest.mark.parametrize("name", FOLLOWS)
def test_a_wrong_loss_is_found_in_each_convention(name):
    model, kind, _, wrong, case = FOLLOWS[name]
    for build, cases in ((model, set()), (wrong, {case})):
        torch.manual_seed(0)
        report = examine(build(), kind=kind, only=[case.partition(".")[0]])
        assert {f.case for f in report.findings if f.severity != "note"} == cases
