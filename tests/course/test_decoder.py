"""The whole decoder of chapter 11: it equals the package's own small Llama, the doctor finds
nothing in it, and its own check notices what the chapter says. tests/test_documents.py runs it."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from clearhead import build_model, preset
from clearhead.doctor import examine
from tests.course.test_exercises import skeleton

DOCS = Path(__file__).parent.parent.parent / "docs"
FILES = {language: DOCS / language / "course" / "decoder.py" for language in ("en", "zh")}


def load(source: str) -> ModuleType:
    module = sys.modules["whole_decoder"] = ModuleType("whole_decoder")  # torch.compile looks it up
    exec(compile(source, "decoder.py", "exec"), module.__dict__)
    return module


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return load(FILES["en"].read_text(encoding="utf-8"))


def renamed(name: str) -> str:
    """A parameter of the page as the package calls it."""
    if not name.startswith("layers."):
        return name.replace("norm.", "decoder.norm.")
    for own, package in {
        ".attention.": ".self_attention.",
        ".norm1.": ".around_self_attention.norm.",
        ".norm2.": ".around_feed_forward.norm.",
        ".gate.": ".feed_forward.gate.",
        ".up.": ".feed_forward.up.",
        ".down.": ".feed_forward.down.",
    }.items():
        name = name.replace(own, package)
    return f"decoder.{name}"


@torch.no_grad()
def test_with_the_same_weights_its_logits_are_those_of_the_package(page: ModuleType):
    sizes = {"d_model": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "d_ff": 40}
    own = page.Decoder(29, **sizes)
    sizes |= {"vocab_size": 29, "max_length": 16, "position_base": 10_000.0}
    package = build_model(replace(preset("llama-3-8b"), tie_output=True, **sizes)).eval()
    torch.manual_seed(0)
    for parameter in own.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    package.load_state_dict({renamed(name): value for name, value in own.state_dict().items()})
    tokens = torch.randint(29, (4, 13))
    wanted = package(tokens)
    assert wanted.std() > 0.3
    torch.testing.assert_close(own(tokens), wanted, rtol=0, atol=1e-5)
    cache = [[] for _ in own.layers]
    pieces = [own(piece, cache) for piece in tokens.split([5, 1, 1, 6], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), wanted, rtol=0, atol=1e-5)
    assert {tuple(t.shape) for layer in cache for t in layer} == {(4, 2, 13, 8)}


@pytest.mark.slow
def test_the_doctor_finds_nothing(page: ModuleType):
    torch.manual_seed(0)
    report = examine(page.Decoder(37), kind="decoder")
    assert report.healthy and not report.findings, str(report)


ROTATED = "rotate(q, past), rotate(k, past)"
BROKEN = {
    "nothing": ("", "", [True, True]),
    "positions from the beginning of each call": (
        ROTATED,
        ROTATED.replace("past", "0"),
        [False, True],
    ),
    "a mask aligned to the top left": (".triu(past + 1)", ".triu(1)", [False, True]),
    "no mask": (".masked_fill(later, -math.inf)", "", [False, False]),
    "query heads that share keys in turn": (
        "t.repeat_interleave(self.group, dim=1)",
        "t.repeat(1, self.group, 1, 1)",
        [True, True],
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_its_check_notices_what_the_chapter_says(broken: str, capsys: pytest.CaptureFixture[str]):
    source = FILES["en"].read_text(encoding="utf-8")
    right, wrong, verdicts = BROKEN[broken]
    assert right in source
    page = load(source.replace(right, wrong) if right else source)
    torch.manual_seed(0)
    page.check(page.Decoder(37).double(), torch.randint(37, (1, 32)))
    said = [line.rsplit(maxsplit=1)[1] == "True" for line in capsys.readouterr().out.splitlines()]
    assert said == verdicts


def test_both_languages_have_the_same_code():
    english, chinese = FILES.values()
    assert skeleton(english) == skeleton(chinese)


@pytest.mark.parametrize("language", FILES)
def test_the_page_says_how_many_lines_it_takes(language: str):
    lines = [line for line in FILES[language].read_text("utf-8").splitlines() if line.strip()]
    chapter = (DOCS / language / "course" / "11-modern-decoders.md").read_text(encoding="utf-8")
    said = {"en": f"in {len(lines)} lines", "zh": f"共 {len(lines)} 行"}[language]
    assert said in chapter and len(lines) <= 130
