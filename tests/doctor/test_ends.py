"""Where generation ends: the end is an argument, or the code reads it elsewhere."""

from dataclasses import dataclass

import pytest
import torch

from clearhead.doctor import examine
from tests.doctor.specimens.healthy import Decoder

STOP_TOKEN = 2


@dataclass(frozen=True)
class Config:
    eos_token_id: int = 2


class Greedy(Decoder):
    """Stops when all rows have ended; subclasses say where the end is kept."""

    @property
    def end(self) -> int:
        raise NotImplementedError

    def is_done(self, ended):
        return bool(ended.all())

    def ends(self, token):
        return token == self.end

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens):
        training = self.training
        self.eval()
        ended = torch.zeros(len(tokens), dtype=torch.bool)
        for _ in range(max_new_tokens):
            token = self(tokens)[:, -1].argmax(dim=-1)
            tokens = torch.cat((tokens, token.masked_fill(ended, 0)[:, None]), dim=1)
            ended |= self.ends(token)
            if self.is_done(ended):
                break
        self.train(training)
        return tokens


class OfTheModel(Greedy):
    def __init__(self):
        super().__init__()
        self.eos_id = 2

    def ends(self, token):
        return token == self.eos_id


class OfAFrozenConfig(Greedy):
    def __init__(self):
        super().__init__()
        self.config = Config()

    def ends(self, token):
        return token == self.config.eos_token_id


class OfADict(Greedy):
    def __init__(self):
        super().__init__()
        self.cfg = {"eos_id": 2}

    def ends(self, token):
        return token == self.cfg["eos_id"]


class OfTheFile(Greedy):
    def ends(self, token):
        return token == STOP_TOKEN


WAYS = (OfTheModel, OfAFrozenConfig, OfADict, OfTheFile)


def of_the_first_row(way):
    class Stops(way):
        def is_done(self, ended):
            return bool(ended[0])

    return Stops


def of_any_row(way):
    class Stops(way):
        def is_done(self, ended):
            return bool(ended.any())

    return Stops


def cases(model):
    torch.manual_seed(0)
    report = examine(model, kind="decoder", only=["stops"])
    assert report.not_run == []
    return [finding.case for finding in report.findings]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrong", [of_the_first_row, of_any_row])
def test_generation_that_stops_with_one_row_is_found_wherever_its_end_is_kept(way, wrong):
    assert cases(wrong(way)()) == ["stops.any_row"]
    assert cases(way()) == []


def test_the_end_is_put_back():
    model = OfAFrozenConfig()
    cases(model)
    assert model.config.eos_token_id == 2 and STOP_TOKEN == 2


class ByAFunction(Greedy):
    """Nobody can set what a function returns."""

    def eos_token_id(self):
        return 2

    def ends(self, token):
        return token == self.eos_token_id()


class Endless(Greedy):
    def ends(self, token):
        return torch.zeros_like(token, dtype=torch.bool)


def test_code_that_reads_an_end_is_not_said_to_have_none():
    assert cases(ByAFunction()) == []
    assert cases(Endless()) == ["stops.no_setting"]


class EndsByChance(Decoder):
    """Sampling draws the end at once. Greedy decoding never does, and reads all of its text."""

    end = 2

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens, top_k=None, eos_id=end):
        for _ in range(max_new_tokens):
            logits = self(tokens)[:, -1:]
            drawn = torch.full_like(tokens[:, :1], self.end)
            token = drawn if top_k is None else logits.argmax(dim=-1)
            tokens = torch.cat((tokens, token), dim=1)
            if (token == eos_id).all():
                break
        return tokens


def test_an_end_that_comes_by_chance_does_not_hide_what_is_past_the_limit():
    torch.manual_seed(0)
    report = examine(EndsByChance(), kind="decoder", only=["past_the_limit"])
    assert report.not_run == []
    assert [finding.case for finding in report.findings] == ["past_the_limit.crash"]
