"""A check that could not run is no clean bill: the report, the exit code and a test suite say so.
Models that take few sequences at once are given few."""

import pytest
import torch

from clearhead.cli import main
from clearhead.doctor import assert_healthy, examine
from clearhead.doctor.terminal import as_text
from tests.doctor.specimens import healthy
from tests.doctor.specimens.healthy import LIMIT, Decoder


class Fails(Decoder):
    def train(self, mode=True):
        if mode:
            raise OSError("no training today")
        return super().train(mode)


@pytest.fixture(scope="module")
def report():
    return examine(Fails(), kind="decoder", only=["causal", "dropout"])


def test_a_check_that_could_not_run_is_no_clean_bill(report):
    assert [outcome.check for outcome in report.not_run] == ["dropout"]
    assert report.findings == () and not report.healthy
    assert not report.fails() and report.fails(strict=True)


def test_the_last_sentence_names_what_was_not_examined_and_why(report):
    *_, reason, last = as_text(report).splitlines()
    assert reason == "dropout could not run: OSError: no training today"
    assert last.endswith("1 of 2 checks could not run. Not examined: dropout.")
    assert "Nothing is wrong with this model" not in as_text(report)
    assert as_text(report, "zh").splitlines()[-1].endswith("未经检查：dropout。")


def test_the_exit_code_tells_a_clean_bill_from_an_incomplete_one(report, tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("from tests.doctor.test_not_run import Fails, Decoder\n")
    arguments = ["doctor", f"{file}:Fails", "--kind", "decoder", "--only", "dropout"]
    assert main(arguments) == 3
    assert main([*arguments, "causal", "--strict"]) == 1
    assert main(["doctor", f"{file}:Decoder", *arguments[2:]]) == 0
    capsys.readouterr()
    assert report.exit_code() == 3 and report.exit_code(strict=True) == 1


def test_assert_healthy_fails_where_a_check_could_not_run():
    with pytest.raises(AssertionError, match="dropout could not run"):
        assert_healthy(Fails(), kind="decoder", only=["dropout"])
    assert_healthy(Fails(), kind="decoder", only=["dropout"], but={"dropout"})


class KeepsAside(Decoder):
    """Memory for so many sequences, as in the reference code of Llama."""

    def __init__(self, n_rows, **settings):
        super().__init__(**settings)
        self.register_buffer("kept", torch.zeros(n_rows, LIMIT, healthy.WIDTH), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        batch, length = tokens.shape
        self.kept[:batch, :length] = x.detach()
        for block in self.blocks:
            x, _ = block(x, self.allowed(length, length))
        return self.scores(x)


@pytest.mark.parametrize("n_rows", [5, 1])
def test_a_model_that_takes_few_sequences_at_once_is_given_few(n_rows):
    torch.manual_seed(0)
    report = examine(KeepsAside(n_rows), kind="decoder", quick=True)
    assert report.recognised["rows"] == f"<= {n_rows}"
    assert report.healthy, str(report)


class KeepsAsideAndLeaks(KeepsAside):
    def allowed(self, n_queries, n_keys):
        return torch.ones(n_queries, n_keys, dtype=torch.bool)


@pytest.mark.parametrize("n_rows", [5, 1])
def test_a_leak_is_found_in_a_model_that_takes_few_sequences_at_once(n_rows):
    torch.manual_seed(0)
    report = examine(KeepsAsideAndLeaks(n_rows), kind="decoder", quick=True)
    assert report.headlines[0].case == "causal.leak"
    assert report.not_run == []


def test_a_model_without_a_limit_is_not_said_to_have_one():
    assert "rows" not in examine(Decoder(), kind="decoder", only=["causal"]).recognised
