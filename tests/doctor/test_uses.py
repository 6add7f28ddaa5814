"""Where people are: the command line's exits, test suites, notebooks, Hugging Face's Trainer."""

import json

import pytest
import torch

from clearhead.cli import main
from clearhead.doctor import examine
from clearhead.doctor.specimen import DEFECTS, TutorialTransformer
from clearhead.errors import ClearheadError
from tests.doctor.specimens.healthy import Decoder

pytest_plugins = ["pytester"]
MODEL = """
import torch
from torch import nn
from clearhead.doctor import Calls

class Bigram(nn.Module):
    def __init__(self, size=30):
        super().__init__()
        self.table = nn.Embedding(size, size)
    def forward(self, tokens):
        print("hello from forward")
        return self.table(tokens)

def gpu():
    raise RuntimeError("Found no NVIDIA driver on your system")

def needs(size):
    return Bigram(size)

class Odd(Bigram):
    def forward(self, words, style):
        return self.table(words) * style

built = Bigram()
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


@pytest.mark.slow
def test_every_defect_of_the_tutorial_model_is_named():
    torch.manual_seed(0)
    report = examine(TutorialTransformer(), kind="encoder-decoder", quick=True)
    assert {finding.case for finding in report.findings} >= set(DEFECTS)
    assert report.headlines[0].case == "causal.one_sequence"
    assert not report.not_run


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "without .cuda()"),
        ("needs", "write a function without arguments"),
        ("absent", "has no 'absent'"),
        ("Odd", "style=..."),
    ],
)
def test_what_cannot_be_opened_or_called_is_exit_2_with_its_reason(file, capsys, name, message):
    assert main(["doctor", f"{file}:{name}", "--kind", "decoder"]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err + said.out


@pytest.mark.parametrize("text", ["import nothing_like_this\n", "def broken(:\n", "1 / 0\n"])
def test_a_file_that_cannot_be_imported_is_exit_2(tmp_path, capsys, text):
    path = tmp_path / "torn.py"
    path.write_text(text, encoding="utf-8")
    assert main(["doctor", f"{path}:build", "--kind", "decoder"]) == 2
    assert "cannot be imported" in capsys.readouterr().err


def test_json_is_alone_on_standard_output_and_an_instance_will_do(file, capsys):
    arguments = ["doctor", f"{file}:built", "--kind", "decoder", "--only", "context", "--json"]
    assert main(arguments) == 1
    content = json.loads(capsys.readouterr().out)
    assert [finding["case"] for finding in content["findings"]] == ["context.alone"]


def test_calls_in_the_file_are_used(file, capsys):
    calls = "calls = Calls(logits=lambda model, inputs: model(inputs.tokens, 1.0))\n"
    file.write_text(MODEL + calls, encoding="utf-8")
    arguments = ["doctor", f"{file}:Odd", "--kind", "decoder", "--vocab-size", "30"]
    assert main([*arguments, "--only", "output"]) == 0
    capsys.readouterr()


def test_an_unrecognised_model_is_explained_in_chinese(file, capsys):
    assert main(["doctor", f"{file}:Odd", "--kind", "decoder", "--language", "zh"]) == 2
    assert "请写明如何调用它" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nothing/here", "既不是 FILE.py:NAME"),
        ("{file}", "请写明用其中哪个模型"),
        ("{folder}/other.py:build", "没有文件"),
        ("{folder}/broken.py:build", "第 2 行，无法导入：SyntaxError"),
        ("{file}:bild", "里没有 'bild'"),
        ("{file}:number", "是 int；应当是模型"),
        ("{file}:text", "返回了 str；应当返回 torch.nn.Module"),
        ("{file}:needs", "请写一个不带参数的函数"),
        ("{folder}/model", "打不开："),
        ("{file}:Odd --only causl", "是不是想写 'causal'？"),
    ],
)
def test_a_model_that_cannot_be_opened_is_explained_in_chinese(file, capsys, model, said):
    own = "number = 3\ndef text(): return 'abc'\n"
    file.write_text(MODEL + own, encoding="utf-8")
    (file.parent / "broken.py").write_text("import torch\ndef build(:\n", encoding="utf-8")
    (file.parent / "model").mkdir(exist_ok=True)
    (file.parent / "model" / "config.json").write_text("{}", encoding="utf-8")
    words = model.format(file=file, folder=file.parent).split()
    assert main(["doctor", *words, "--kind", "decoder", "--language", "zh"]) == 2
    assert said in capsys.readouterr().err


def test_a_report_without_rich_is_plain_lines(monkeypatch):
    report = examine(Leaky(), kind="decoder", only=["causal"])
    monkeypatch.setitem(__import__("sys").modules, "clearhead.doctor.terminal", None)
    assert "error  The future leaks into the past  [causal.leak]" in str(report)


def test_a_notebook_shows_the_page_in_a_frame_of_its_own():
    shown = examine(Decoder(), kind="decoder", only=["causal"])._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "<script" not in shown


def test_the_fixture_of_the_plugin_fails_with_the_report(pytester):
    pytester.makeconftest("from clearhead.doctor.plugin import healthy")
    pytester.makepyfile(
        MODEL + "def test_bigram(healthy):\n    healthy(built, kind='decoder', only=['context'])\n"
    )
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*context.alone*"])


class Leaky(Decoder):
    def allowed(self, n, m):
        return None


def test_training_does_not_start_with_an_error():
    from types import SimpleNamespace

    from clearhead.doctor.trainer import ExamineFirst

    state = SimpleNamespace(global_step=0, is_world_process_zero=True)
    first = ExamineFirst(kind="decoder", only=["causal"])
    first.on_train_begin(None, state, None, model=Decoder())
    assert first.report is not None and first.report.healthy
    with pytest.raises(ClearheadError, match=r"causal\.leak"):
        first.on_train_begin(None, state, None, model=Leaky())
    ExamineFirst(stop=False, kind="decoder", only=["causal"]).on_train_begin(
        None, state, None, model=Leaky()
    )
