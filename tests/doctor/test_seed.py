"""`--seed` decides every number of a report, those of a model that the command builds too."""

import json
import random

import numpy as np
import pytest
import torch

from clearhead.cli import main
from clearhead.doctor.seeding import seeded

BUILDERS = """
import random
import numpy as np
import torch
from tests.doctor.specimens.attentions import OffByOne

def by_torch():
    return OffByOne()

def by_numpy():
    model = OffByOne()
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = np.random.normal(size=parameter.shape)
            parameter.copy_(random.gauss(1.0, 0.1) * torch.as_tensor(drawn))
    return model

at_import = OffByOne()
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(BUILDERS)
    return path


def numbers(capsys, *arguments):
    assert main(["doctor", *arguments, "--kind", "decoder", "--json"]) == 1
    return [finding["numbers"] for finding in json.loads(capsys.readouterr().out)["findings"]]


@pytest.mark.parametrize("name", ["by_torch", "by_numpy", "at_import"])
def test_the_same_command_gives_the_same_digits(file, capsys, name):
    arguments = [f"{file}:{name}", "--only", "causal", "--seed", "3"]
    torch.manual_seed(11)
    one = numbers(capsys, *arguments)
    torch.manual_seed(12)
    assert numbers(capsys, *arguments) == one
    assert numbers(capsys, *arguments[:-1], "4") != one


def test_what_a_report_says_to_repeat_repeats_to_the_digit(file, capsys):
    whole = ["--quick", "--seed", "0"]
    assert main(["doctor", f"{file}:by_torch", "--kind", "decoder", "--json", *whole]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert len({finding["check"] for finding in findings}) > 1
    for finding in findings:
        arguments = [f"{file}:by_torch", "--kind", "decoder", "--json", "--seed", "0"]
        main(["doctor", *arguments, "--only", finding["check"]])
        alone = json.loads(capsys.readouterr().out)["findings"]
        assert finding["numbers"] in [other["numbers"] for other in alone]


def test_the_generators_are_left_as_they_were():
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    with seeded(5):
        first = torch.rand(1), random.random(), np.random.rand()
    with seeded(5):
        assert first == (torch.rand(1), random.random(), np.random.rand())
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert (states[2] == np.random.get_state()[1]).all()
