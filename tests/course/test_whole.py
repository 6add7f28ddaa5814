"""The whole Transformer on a page: it equals the package's own model, the doctor finds nothing in
it, what is broken is found, and the page prints what it shows."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.doctor import examine
from clearhead.models.assemble import build_model
from tests.course.test_exercises import skeleton
from tests.test_documents import blocks, run

DOCS = Path(__file__).parent.parent.parent / "docs"
FILES = {language: DOCS / language / "course" / "transformer.py" for language in ("en", "zh")}


def load(source: str) -> ModuleType:
    module = sys.modules["transformer"] = ModuleType("transformer")  # torch.compile looks it up
    exec(compile(source, "transformer.py", "exec"), module.__dict__)
    return module


@pytest.fixture(scope="module")
def whole() -> ModuleType:
    return load(FILES["en"].read_text(encoding="utf-8"))


def renamed(name: str) -> str:
    """A parameter of the page as the package calls it."""
    name = re.sub(r"^(encoder|decoder)\.(\d)", r"\1.layers.\2", name)
    name = re.sub(r"^(encoder|decoder)_norm", r"\1.norm", name)
    name = re.sub(r"\.(up|down)\.", r".feed_forward.\1.", name)
    around = {"norm1": "self_attention", "norm2": "cross_attention", "norm3": "feed_forward"}
    return re.sub(r"norm\d", lambda found: f"around_{around[found[0]]}.norm", name)


def test_with_the_same_weights_its_logits_are_those_of_the_package(whole: ModuleType):
    torch.manual_seed(0)
    own = whole.Transformer(29, d_model=24, n_layers=3, n_heads=3, d_ff=40).eval()
    config = ModelConfig(
        family="encoder-decoder",
        vocab_size=29,
        pad_id=whole.PAD,
        d_model=24,
        n_layers=3,
        n_heads=3,
        d_ff=40,
        max_length=16,
        position_pairs="interleaved",
    )
    package = build_model(config).eval()
    for parameter in own.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    package.load_state_dict({renamed(name): value for name, value in own.state_dict().items()})
    source, target = torch.randint(3, 29, (4, 9)), torch.randint(3, 29, (4, 6))
    source[1, 5:], source[3, 2:], target[2, 4:] = whole.PAD, whole.PAD, whole.PAD
    with torch.no_grad():
        found, wanted = own(source, target), package(source, target)
    real = target != whole.PAD
    assert wanted[real].std() > 0.3
    torch.testing.assert_close(found[real], wanted[real], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_doctor_finds_nothing(whole: ModuleType):
    torch.manual_seed(0)
    report = examine(whole.Transformer(), kind="encoder-decoder")
    assert report.healthy and not report.findings, str(report)


BROKEN = {
    "the causal mask": (".tril()", ""),
    "the mask of the source": (
        "(source != PAD)[:, None, None], self",
        "(source > -1)[:, None, None], self",
    ),
    "the factor of the embedding": (" * math.sqrt(self.tokens.embedding_dim)", ""),
    "the transpose": (
        "t.unflatten(2, (self.n_heads, -1)).transpose(1, 2)",
        "t.reshape(len(t), self.n_heads, t.shape[1], -1)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
def test_the_doctor_finds_what_the_page_lets_its_reader_break(broken: str):
    source, (right, wrong) = FILES["en"].read_text(encoding="utf-8"), BROKEN[broken]
    assert source.count(right) >= 1
    torch.manual_seed(0)
    whole = load(source.replace(right, wrong))
    model = whole.Transformer()
    assert not examine(model, kind="encoder-decoder", pad_id=whole.PAD, quick=True).healthy


def test_both_languages_have_the_same_code():
    english, chinese = FILES.values()
    assert skeleton(english) == skeleton(chinese)


@pytest.mark.parametrize("language", FILES)
def test_the_page_says_how_many_lines_it_takes(language: str):
    lines = [line for line in FILES[language].read_text("utf-8").splitlines() if line.strip()]
    page = (DOCS / language / "course" / "whole.md").read_text(encoding="utf-8")
    said = re.search(r"in (\d+) lines|共 (\d+) 行", page)
    assert said is not None and int(said[1] or said[2]) == len(lines) <= 125


@pytest.mark.slow
def test_the_page_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch):
    """Its blocks run one after the other, as in a notebook."""
    page = (DOCS / "en" / "course" / "whole.md").read_text(encoding="utf-8")
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)  # torch.compile looks up names there
    copied, numbers, doctor = (run(code, vars(notebook)) for code in blocks(page, "python"))
    shown = blocks(page, "text")
    assert copied.split() == shown[0].split()
    assert numbers.splitlines()[0] == shown[1].splitlines()[0]
    # Another processor rounds in another way, and a rare number may be learnt a little later.
    assert int(numbers.splitlines()[1].split()[0]) >= 495
    assert doctor.split() == shown[2].split()
