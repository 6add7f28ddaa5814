"""A report is as long as what it has to say: notes take a line, prints of the model none."""

import json

import pytest
import torch

from clearhead.cli import main
from clearhead.doctor import examine
from clearhead.doctor.terminal import as_text
from tests.doctor.specimens.healthy import GeneratingDecoder

FILE = """
import torch
from tests.doctor.specimens.healthy import Decoder, GeneratingDecoder

class Talks(Decoder):
    def forward(self, tokens):
        print("layer by layer")
        print("shape", tokens.shape, end="; ")
        return super().forward(tokens)

class Plain(GeneratingDecoder):
    def distribution(self, logits, temperature, top_k):
        logits = logits / temperature
        if top_k is not None:
            best = logits.topk(top_k).values
            logits = logits.masked_fill(logits < best[:, -1:], -torch.inf)
        return logits.softmax(dim=-1)

    def before(self):
        pass

def fails():
    print("reading the weights of 1999")
    raise ValueError("no weights")
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_what_the_model_prints_is_counted_and_left_out(file, capsys):
    assert main(["doctor", f"{file}:Talks", "--kind", "decoder", "--only", "causal"]) == 0
    out, err = capsys.readouterr()
    assert "layer by layer" not in out + err
    assert "The model's own code printed" in out
    arguments = ["--kind", "decoder", "--only", "causal", "--json"]
    assert main(["doctor", f"{file}:Talks", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["printed_lines"] > 2


def test_the_last_prints_are_shown_where_the_model_is_not_built(file, capsys):
    assert main(["doctor", f"{file}:fails", "--kind", "decoder"]) == 2
    out, err = capsys.readouterr()
    assert "reading the weights of 1999" in err and "no weights" in err
    assert out == ""


def test_the_report_of_a_healthy_small_model_fits_forty_lines(file, capsys):
    arguments = ["doctor", f"{file}:Plain", "--kind", "decoder", "--quick"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    notes = [line for line in lines if line.startswith("note  ")]
    assert len(notes) >= 4 and len(lines) <= 40
    assert not any("╭" in line for line in lines)
    assert main([*arguments, "--notes"]) == 0
    text = capsys.readouterr().out
    assert text.count("╭─ note") == len(notes) and "To repeat" in text


def test_a_note_takes_one_line_in_every_width():
    torch.manual_seed(0)
    report = examine(GeneratingDecoder(), kind="decoder", only=["limit"])
    assert [finding.case for finding in report.findings] == ["limit.beyond"]
    for width in (40, 88):
        lines = as_text(report, width=width).splitlines()
        assert sum("limit.beyond" in line for line in lines) == 1
        assert max(map(len, lines)) <= width
    assert "IndexError" in as_text(report, notes=True)
