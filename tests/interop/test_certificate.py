"""An export proves itself, or is not kept."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models

from clearhead.cli import main
from clearhead.errors import FolderError, ModelError
from clearhead.interop import equivalent
from clearhead.interop.ctranslate2.exporting import export_ctranslate2
from clearhead.interop.huggingface import certificate, families
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.huggingface.rules import Rule
from clearhead.interop.model_folder import TokenIds, load_model, save_model
from tests.drawing import random_model
from tests.interop.test_parity import our_config

TEXTS = ["", "Hello, world!", "  two  spaces", "你好，世界", "a<eos>b"]


def saved(family: str, folder: Path, **options: Any) -> Path:
    config = replace(our_config(family), **options)
    save_model(random_model(config, dtype=torch.float32), folder / "ours")
    return folder / "ours"


def test_the_certificate_says_what_was_compared(tmp_path: Path):
    ours, out = saved("gpt2", tmp_path), tmp_path / "theirs"
    found = export_model(ours, out)
    written = json.loads((out / "parity.json").read_text())
    assert written["checked"] and written["agrees"]
    assert 0 < written["largest_difference"] < 1e-10
    assert written["n_tokens"] == 3 * 16 + 2 * (16 + 8 + 1) + 2 + 29
    assert written["versions"]["transformers"] == transformers.__version__
    assert found.lines(out) == (
        f"wrote     {out}: GPT-2, GPT2LMHeadModel",
        f"compared  129 tokens with transformers {transformers.__version__}: "
        "random, padded, padded on the left, length 1, length 29",
        f"agree     largest logit difference {found.largest_difference:.1e}, limit 1e-04",
    )


def forgetful(rule: Rule, tensors: list[torch.Tensor]) -> torch.Tensor:
    """A rule table with a defect: keys and values change places."""
    return right_conversion(rule, tensors[::-1] if len(tensors) == 3 else tensors)


right_conversion = Rule.to_hugging_face


def test_an_export_that_computes_something_else_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ours = saved("gpt2", tmp_path)
    monkeypatch.setattr(Rule, "to_hugging_face", forgetful)
    with pytest.raises(FolderError, match="just written differs from the model"):
        export_model(ours, tmp_path / "theirs")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_a_wrong_rewriting_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ours = saved("marian", tmp_path, position_pairs="interleaved")
    monkeypatch.setattr(equivalent, "_into_halves", lambda width, groups: torch.arange(width))
    with pytest.raises(FolderError, match="just written differs from the model"):
        export_model(ours, tmp_path / "theirs")


def test_a_tensor_that_transformers_misses_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Even one that nothing looks at."""
    ours = saved("pegasus", tmp_path, tie_output=False)
    family = next(f for f in families.FAMILIES if f.name == "Pegasus")

    def fewer(config: Any) -> list[Rule]:
        return [rule for rule in family.rules(config) if rule.kind != "spare"]

    monkeypatch.setattr(families, "FAMILIES", (replace(family, rules=fewer),))
    with pytest.raises(FolderError, match=r"missing keys: model.shared.weight"):
        export_model(ours, tmp_path / "theirs")


def test_weights_that_are_not_numbers_are_not_exported(tmp_path: Path):
    model = random_model(our_config("gpt2"), dtype=torch.float32)
    with torch.no_grad():
        model.decoder.norm.weight[0] = torch.nan
    save_model(model, tmp_path / "ours")
    with pytest.raises(FolderError, match="holds NaN or infinite numbers"):
        export_model(tmp_path / "ours", tmp_path / "theirs")


@pytest.mark.parametrize("export", [export_model, export_ctranslate2])
@pytest.mark.parametrize("part", ["norm", "tokens", "both"])
def test_finite_weights_that_compute_no_numbers_do_not_agree(
    export: Callable[[Path, Path], Any], part: str, tmp_path: Path
):
    """In fp64 both sides may agree on numbers that the folder's own format cannot hold."""
    model = random_model(our_config("gpt2"), dtype=torch.float32)
    with torch.no_grad():
        for weight in {
            "norm": [model.decoder.norm.weight],
            "tokens": [model.tokens.weight],
            "both": [model.decoder.norm.weight, model.tokens.weight],
        }[part]:
            weight.copy_(weight.sign() * 3e38)
    save_model(model, tmp_path / "ours", ids=TokenIds(eos=2))
    with pytest.raises(ModelError, match="that are NaN or infinite, so a comparison would mean"):
        export(tmp_path / "ours", tmp_path / "theirs")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_a_check_that_was_left_out_is_not_called_a_proof(tmp_path: Path):
    found = export_model(saved("gpt2", tmp_path), tmp_path / "theirs", check=False)
    written = json.loads((tmp_path / "theirs" / "parity.json").read_text())
    assert not written["checked"] and not written["agrees"]
    assert found.lines(Path("out"))[1:] == (
        "compared  nothing: the check was left out, as asked",
        "unproven  that the folder computes what the model does; parity.json says so too",
    )


@pytest.mark.slow
def test_without_transformers_all_but_the_proof_works(tmp_path: Path):
    saved("llama", tmp_path)
    script = (
        "import sys\n"
        "sys.modules['transformers'] = None\n"  # as if it were not installed
        "import clearhead\n"
        "from clearhead.cli import main\n"
        "assert main(['export', 'ours', '--to', 'huggingface', 'theirs']) == 0\n"
        "assert main(['import', 'theirs', 'back']) == 0\n"
        "assert not any(name.startswith('transformers.') for name in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == [
        "wrote     theirs: Llama, LlamaForCausalLM",
        "compared  nothing: transformers is not installed (pip install 'clearhead[hf]')",
        "unproven  that the folder computes what the model does; parity.json says so too",
    ]
    assert not json.loads((tmp_path / "theirs" / "parity.json").read_text())["checked"]
    ours, back = (load_model(tmp_path / name).state_dict() for name in ("ours", "back"))
    assert all(torch.equal(tensor, back[name]) for name, tensor in ours.items())


@pytest.mark.parametrize("family", ["gpt2", "marian", "bert"])
def test_the_tokenizer_goes_along(family: str, tmp_path: Path, tokenizer: Path):
    config = replace(our_config(family), vocab_size=300)
    save_model(random_model(config, dtype=torch.float32), tmp_path / "ours", tokenizer=tokenizer)
    saved_bytes = (tmp_path / "ours" / "tokenizer.json").read_bytes()
    assert saved_bytes == (tokenizer / "tokenizer.json").read_bytes()
    export_model(tmp_path / "ours", tmp_path / "theirs")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    library = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    library.encode_special_tokens = True  # as clearhead.text does: no text ends a sequence
    # Our texts end in <eos>; a prompt goes on.
    end = [] if family == "gpt2" else [2]
    for text in TEXTS:
        assert theirs(text)["input_ids"] == library.encode(text).ids + end
    assert (theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id) == (0, 1, 2)
    assert theirs.padding_side == ("left" if family == "gpt2" else "right")
    batch = theirs(["hello", "hello world, hello"], padding=True)
    segments = {"token_type_ids"} if family == "bert" else set[str]()
    assert batch.keys() == {"input_ids", "attention_mask"} | segments
    assert theirs.decode(library.encode("hello world").ids) == "hello world"


def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path):
    folder = saved("gpt2", tmp_path)
    (folder / "tokenizer.json").write_text('{"model": {"type": "evil"}}')
    with pytest.raises(FolderError, match="is not a tokenizer"):
        export_model(folder, tmp_path / "theirs")


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, tokenizer: Path):
    model = random_model(our_config("gpt2"), dtype=torch.float32)
    with pytest.raises(FolderError, match="tokens and the model vocab_size=53; they do not belong"):
        save_model(model, tmp_path / "ours", tokenizer=tokenizer)
    assert list(tmp_path.iterdir()) == []


def test_another_reading_of_a_text_is_a_fault(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
):
    config = replace(our_config("gpt2"), vocab_size=300)
    save_model(random_model(config, dtype=torch.float32), tmp_path / "ours", tokenizer=tokenizer)
    other = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    monkeypatch.setattr(certificate, "open_tokenizer", lambda *_: other)
    with pytest.raises(FolderError, match="AutoTokenizer gives other ids for 'Hello, world!'"):
        export_model(tmp_path / "ours", tmp_path / "theirs")


def test_generation_starts_and_stops_by_the_exported_ids(tmp_path: Path):
    model = random_model(our_config("pegasus"), dtype=torch.float32)
    save_model(model, tmp_path / "ours", ids=TokenIds(bos=5, eos=6, decoder_start=7))
    export_model(tmp_path / "ours", tmp_path / "theirs", check=False)
    for kind in (transformers.GenerationConfig, transformers.AutoConfig):
        found = kind.from_pretrained(tmp_path / "theirs")
        ids = (found.bos_token_id, found.eos_token_id, found.pad_token_id)
        assert (*ids, found.decoder_start_token_id) == (5, 6, 0, 7)
        assert found.forced_eos_token_id is None


def test_the_commands_tell_what_they_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    saved("bert", tmp_path)
    out, back = str(tmp_path / "theirs"), str(tmp_path / "back")
    assert main(["export", str(tmp_path / "ours"), "--to", "huggingface", out]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("agree     largest logit difference")
    assert main(["import", out, back]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"wrote     {back}: encoder, 10,843 parameters",
        f"without   a tokenizer: {out} has no tokenizer.json",
    ]
    assert main(["import", out, back]) == 2
    assert "already exists; name a new folder" in capsys.readouterr().err


def test_what_has_no_home_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    ours = saved("gpt2", tmp_path, output_bias=True)
    assert main(["export", str(ours), "--to", "huggingface", str(tmp_path / "theirs")]) == 2
    progress, refusal = capsys.readouterr().err.split("\n", 1)
    assert progress.startswith("exporting to ")
    assert refusal == (
        "clearhead: output_bias=True cannot be exported losslessly to Hugging Face with the other "
        "options; output_bias=False would be a GPT-2; norm='rms', feed_forward='swiglu', "
        "positions='rotary', output_bias=False would be a Llama\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]
