"""A report says the same in a terminal, as JSON, as a page, and as an exit code."""

import gc
import json
import re
import weakref
from pathlib import Path

import pytest
import torch

from clearhead.cli import main
from clearhead.doctor import assert_healthy, examine
from clearhead.doctor.page import as_html
from clearhead.doctor.specimen import TutorialTransformer
from clearhead.doctor.terminal import as_text
from clearhead.doctor.texts import LANGUAGES
from clearhead.errors import ClearheadError
from tests.doctor.specimens.attentions import OffByOne
from tests.doctor.specimens.healthy import VOCAB, Decoder, Embedding

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ill():
    torch.manual_seed(0)
    return examine(OffByOne(), kind="decoder", only=["causal", "cache", "tied"])


def test_a_report_in_the_terminal_draws_the_leak_and_says_where(ill):
    text = as_text(ill)
    assert "█ ✗ ✗ ·" in text
    assert "blocks.0.attention" in text
    assert "triu(diagonal=1)" in text
    assert "--only causal --seed 0" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_page_needs_nothing_from_elsewhere(ill, language):
    page = as_html(ill, language)
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)
    assert page.count('class="leaks"') == 19  # the next and the one after: 10 + 9
    assert "blocks.0.attention" in page


def test_json_holds_facts_and_sentences(ill):
    content = json.loads(ill.to_json("zh"))
    (finding,) = content["findings"]
    assert finding["case"] == "causal.ahead"
    assert finding["numbers"]["ahead"] == 2
    assert finding["picture"][0][:4] == ["sees", "leaks", "leaks", "blind"]
    assert "掩码" in finding["seen"]
    statuses = {check["check"]: check["status"] for check in content["checks"]}
    assert statuses == {"causal": "found", "tied": "passed", "cache": "not applicable"}
    assert content["healthy"] is False


def test_the_same_seed_gives_the_same_report():
    torch.manual_seed(0)
    model = OffByOne()
    one, other = (examine(model, kind="decoder", only=["causal"], seed=3) for _ in range(2))
    assert one.findings == other.findings


def test_the_examined_model_and_the_generator_are_left_alone():
    torch.manual_seed(0)
    model = Decoder().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    examine(model, kind="decoder", quick=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_assert_healthy_passes_or_shows_the_report():
    torch.manual_seed(0)
    assert_healthy(Decoder(), kind="decoder")
    with pytest.raises(AssertionError, match=r"causal\.ahead\n\n(.|\n)*blocks\.0\.attention"):
        assert_healthy(OffByOne(), kind="decoder")
    assert_healthy(OffByOne(), kind="decoder", but={"causal.ahead"})


class Named(Decoder):
    def forward(self, tokens):
        return {"scores": super().forward(tokens), "n": 3}


def test_logits_are_known_by_their_shape_under_any_name():
    assert examine(Named(), kind="decoder", only=["causal"]).healthy


class Strange(Decoder):
    def forward(self, words, style):
        return super().forward(words) * style


def test_an_unknown_signature_is_answered_with_an_adapter_of_its_own_names():
    with pytest.raises(ClearheadError) as error:
        examine(Strange(), kind="decoder")
    shown = re.search(r"    (calls = .*)\n", str(error.value))
    assert shown is not None and "style=..." in shown[1] and "kind='decoder'" in str(error.value)
    scope: dict = {}
    exec("from clearhead.doctor import Calls\n" + shown[1].replace("...", "1.0"), scope)
    report = examine(Strange(), kind="decoder", vocab_size=VOCAB, calls=scope["calls"], quick=True)
    assert report.healthy


class NanoGPT(Decoder):
    """All logits with targets, the last position's without."""

    def forward(self, tokens, targets=None):
        logits = super().forward(tokens)
        if targets is None:
            return logits[:, -1:], None
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=-1
        )
        return logits, loss


def test_a_model_that_returns_logits_and_loss_is_recognised():
    report = examine(NanoGPT(), kind="decoder", only=["causal", "loss_value"])
    assert report.recognised["call"] == "logits, loss = model(tokens, targets=…)"
    assert "-1 is ignored" in report.recognised["loss"]
    assert [outcome.status for outcome in report.outcomes] == ["passed", "passed"]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"kind": "decodr"}, "did you mean 'decoder'"),
        ({}, "kind is not given"),
        ({"kind": "decoder", "only": ["casual"]}, "did you mean 'causal'"),
    ],
)
def test_a_wrong_request_is_answered_in_words(how, message):
    with pytest.raises(ClearheadError, match=message):
        examine(Decoder(), **how)


def test_the_command_examines_a_file_and_its_exit_code_is_the_verdict(tmp_path, capsys):
    specimens = ROOT / "tests" / "doctor" / "specimens"
    healthy = (specimens / "healthy.py").read_text(encoding="utf-8")
    file = tmp_path / "mine.py"
    file.write_text(
        healthy + "\n\ndef ill():\n    return Wrong()\n\n"
        "class Wrong(Decoder):\n    def allowed(self, n, m):\n        return None\n"
    )
    page = tmp_path / "report.html"
    name = str(file)
    only = ["--only", "causal"]
    assert main(["doctor", f"{name}:Decoder", "--kind", "decoder", *only]) == 0
    capsys.readouterr()
    arguments = ["doctor", f"{name}:ill", "--kind", "decoder", *only, "--html", str(page)]
    assert main([*arguments, "--language", "zh"]) == 1
    assert "未来泄漏到了过去" in capsys.readouterr().out
    assert 'lang="zh-Hans"' in page.read_text(encoding="utf-8")
    assert main([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["check"] == "causal"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nowhere", "neither FILE.py:NAME, nor a folder"),
        (
            "{folder}/weights.pt",
            "weights.pt' is a file of weights, which does not say how to compute",
        ),
        ("nowhere.py:build", "there is no file"),
        ("{folder}/mine.py:absent", "has no 'absent'"),
        ("{folder}/mine.py:number", "returned an object of type int"),
    ],
)
def test_the_command_says_what_it_cannot_open(tmp_path, capsys, model, message):
    (tmp_path / "mine.py").write_text("def number():\n    return 3\n")
    (tmp_path / "weights.pt").write_bytes(b"PK")
    assert main(["doctor", model.format(folder=tmp_path), "--kind", "decoder"]) == 2
    assert message in capsys.readouterr().err


def test_the_command_opens_our_folder_and_a_hugging_face_folder(tmp_path, capsys):
    from clearhead.interop.model_folder import save_model
    from clearhead.models import build_model, preset
    from tests.doctor.others import gpt2

    ours = tmp_path / "ours"
    save_model(build_model(preset("tiny-decoder")), ours)
    gpt2().save_pretrained(tmp_path / "theirs")
    for folder in (ours, tmp_path / "theirs"):
        assert main(["doctor", str(folder), "--only", "causal", "first_loss"]) == 0
        assert "the weights are trained" in capsys.readouterr().out


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_example_of_the_readme_is_what_the_doctor_says(language):
    """The code in the example is run, and its report is the one that is printed beside it."""
    example = ROOT / "docs" / language / "doctor" / "example.md"
    program, printed = re.findall(r"```\w+\n(.*?)```", example.read_text(encoding="utf-8"), re.S)
    assert len(program.splitlines()) <= 25
    scope: dict = {}
    exec(program, scope)
    assert as_text(scope["report"], language, width=88).strip() == printed.strip()


def test_padding_that_the_table_holds_is_recognised():
    class Padded(Decoder):
        def __init__(self):
            super().__init__(embedding=lambda width: Embedding(width, pad=5))

    from clearhead.doctor.recognition import recognise

    assert recognise(Padded(), kind="decoder").pad_id == 5


def test_a_model_is_not_kept_after_its_examination():
    model = TutorialTransformer(d_model=16, n_layers=1)
    left = weakref.ref(model)
    report = examine(model, kind="encoder-decoder", only=["causal", "residual"])
    del model
    gc.collect()
    assert report.found("causal") and left() is None
