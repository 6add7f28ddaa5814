"""The report: text, JSON, page, two languages, exit codes."""

import json
from pathlib import Path

import pytest

from clearhead.cli import main
from clearhead.doctor.diff import PortReport, diff
from clearhead.doctor.diff.page import as_html
from clearhead.doctor.diff.terminal import as_text
from clearhead.doctor.diff.texts import sentences
from tests.doctor.diff.planted import BUGS, port, reference


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> PortReport:
    bug = next(b for b in BUGS if (b.family, b.name) == ("llama", "gelu"))
    original = reference("llama")
    folder = tmp_path_factory.mktemp("report")
    return diff(original, port("llama", original, folder, bug), kind="decoder")


def test_both_languages_have_the_same_sentences():
    english, chinese = sentences("en"), sentences("zh")
    assert english.keys() == chinese.keys()
    for table in english:
        assert english[table].keys() == chinese[table].keys()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_shows_both_lines_and_the_cause(report: PortReport, language):
    for shown in (as_text(report, language), as_html(report, language)):
        assert "gated = F.gelu(self.gate(x))" in shown and "SiLU" in shown
        assert "activations.py" in shown


def test_json_has_the_facts_in_every_language(report: PortReport):
    english, chinese = (json.loads(report.to_json(language)) for language in ("en", "zh"))
    assert english["departures"][0]["cause"] == chinese["departures"][0]["cause"]
    assert english["departures"][0]["cause"]["kind"] == "function"
    assert english["verdict"] != chinese["verdict"] and not english["same"]
    assert english["departures"][0]["line"]["text"] == "gated = F.gelu(self.gate(x))"


def test_a_page_asks_for_nothing_from_elsewhere(report: PortReport):
    page = as_html(report)
    assert "http" not in page and "<script" not in page
    assert "sandbox" in report._repr_html_()


SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(53, 8), nn.Linear(8, 53)

    def forward(self, tokens):
        x = self.tokens(tokens)
        x = x.cumsum(1) * {factor}
        return self.head(x)


def build():
    torch.manual_seed(0)
    return Model()
"""


def test_the_command_says_same_departs_or_cannot(tmp_path: Path, capsys):
    for name, factor in (("one", 0.5), ("two", 0.5), ("three", 0.25)):
        (tmp_path / f"{name}.py").write_text(SOURCE.format(factor=factor))
    one, two, three = (f"{tmp_path / name}.py:build" for name in ("one", "two", "three"))
    how = ["--kind", "decoder"]
    assert main(["diff", one, two, *how]) == 0
    assert "computes what the reference does" in capsys.readouterr().out.replace("\n", " ")
    page = tmp_path / "report.html"
    assert main(["diff", one, three, *how, "--json", "--html", str(page)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["departures"][0]["line"]["line"] == 13
    assert found["departures"][0]["cause"]["kind"] == "factor"
    assert "three.py" in page.read_text("utf-8")
    assert main(["diff", one, str(tmp_path / "none.py:build"), *how]) == 2
    capsys.readouterr()
    assert main(["diff", one, two]) == 0  # neither says what kind of model it is
    assert "decoder (logits = model(tokens)); kind was not given" in capsys.readouterr().out
