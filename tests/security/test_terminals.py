"""Attacks on whoever looks: escape sequences in a model's answers, labels, names and messages."""

import json
import os
import pty
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from clearhead.cli import main
from clearhead.cli.console import TextConsole
from clearhead.cli.terminal import as_field, one_line, visible
from clearhead.config import ModelConfig
from clearhead.inspection.attention import label_of
from clearhead.interop.labels import Labels, write_labels
from clearhead.interop.model_folder import TokenIds, save_model
from clearhead.models import build_model
from clearhead.models.initialise import initialise
from clearhead.text.tokenizer import byte_alphabet, tokenizer_from_json
from clearhead.text.train import train_bpe

CLIPBOARD = "\x1b]52;c;Y3VybCBldmls\x07"
"""Writes to the clipboard of whoever sees it."""
HIDE = "\x9b8m"
"""C1: what follows is invisible."""
SPECIAL = ("<pad>", "<bos>", "<eos>", "<mask>")


def evil_tokenizer() -> str:
    """Every word that the model can write is an escape sequence."""
    content = json.loads(train_bpe(["aa bb cc dd"] * 9, 280, special_tokens=SPECIAL).to_json())
    alphabet = byte_alphabet()
    spell = "".join(alphabet[byte] for byte in (CLIPBOARD + HIDE).encode())
    single = {alphabet[byte] for byte in b"abcd "}
    content["model"]["merges"] = []
    vocab = content["model"]["vocab"]
    content["model"]["vocab"] = {
        token if token in single or token in SPECIAL else f"{spell}{index}": index
        for token, index in vocab.items()
    }
    return json.dumps(content)


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model folders of two families: one writes escape sequences, one has them in its labels."""
    folder = tmp_path_factory.mktemp("evil")
    (folder / "tokenizer.json").write_text(evil_tokenizer(), encoding="utf-8")
    tokenizer = tokenizer_from_json((folder / "tokenizer.json").read_text(encoding="utf-8"))
    sizes = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32, "max_length": 40, "pad_id": 0}
    for family in ("decoder", "encoder"):
        config = ModelConfig(family=family, vocab_size=tokenizer.vocab_size, **sizes)
        model = build_model(config)
        initialise(model, 1)
        save_model(model, folder / family, ids=TokenIds(), tokenizer=folder)
    labels = {f"good{CLIPBOARD}{HIDE}": 4, "bad\nclearhead: all is well\t\u2028": 5}
    write_labels(folder / "encoder", Labels(mask=3, ids=labels))
    return folder


def on_a_terminal(*arguments: str) -> str:
    """What the terminal is sent, on standard output and standard error."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "clearhead", *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)
    assert process.stdin is not None
    process.stdin.write(b"aa bb\n")
    process.stdin.close()
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # closed by the last writer
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    process.wait()
    return seen.decode("utf-8", errors="replace").replace("\r\n", "\n")


@pytest.mark.slow
def test_a_terminal_gets_no_escape_sequence_that_a_model_wrote(evil: Path):
    seen = on_a_terminal("generate", str(evil / "decoder"), "--max-new", "12")
    assert "\\u001b]52;c;" in seen and "\\u009b8m" in seen, seen
    assert visible(seen) == seen


def test_a_pipe_gets_what_the_model_wrote_byte_for_byte(evil: Path, capsys, tmp_path: Path):
    (tmp_path / "in").write_text("aa bb\n")
    given = ["--input", str(tmp_path / "in"), "--max-new", "12"]
    assert main(["generate", str(evil / "decoder"), *given]) == 0
    assert "\x1b]52;c;" in capsys.readouterr().out


@pytest.mark.parametrize("more", [[], ["--scores"]], ids=["labels", "scores"])
def test_a_label_is_one_field_of_one_line(more: list[str], evil: Path, capsys, tmp_path: Path):
    (tmp_path / "in").write_text("aa bb\ncc\ndd dd\n")
    given = ["--input", str(tmp_path / "in"), *more]
    assert main(["classify", str(evil / "encoder"), *given]) == 0
    lines = capsys.readouterr().out.splitlines()  # which also breaks lines at U+2028
    assert len(lines) == 3
    assert {line.count("\t") for line in lines} == {3 if more else 0}
    assert all(visible(line) == line for line in lines)


def test_a_run_with_escape_sequences_in_its_metrics_is_shown_as_text(tmp_path: Path, capsys):
    run = tmp_path / f"run{HIDE}[red]"
    run.mkdir()
    step = {"step": 1, "epoch": 0, "loss": 1.0, "targets": 5, "tokens_per_second": 3.0}
    valid = {"step": 1, "valid": True, "new_best": True, "loss": 2.0, f"{CLIPBOARD}[/x]\ny": 3.0}
    (run / "metrics.jsonl").write_text(f"{json.dumps(step)}\n{json.dumps(valid)}\n")
    assert main(["runs", str(run)]) == 0
    assert main(["runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert visible(out) == out
    assert "valid \\u001b]52;c;Y3VybCBldmls\\u0007[/x]\\ny" in out


def test_an_error_message_shows_no_escape_sequence(tmp_path: Path, capsys):
    folder = tmp_path / f"model{CLIPBOARD}{HIDE}"
    assert main(["generate", str(folder)]) == 2
    err = capsys.readouterr().err
    assert "52;c;" in err and visible(err) == err


def test_rich_styles_what_it_is_told_to_and_obeys_no_text():
    console = TextConsole()
    console.file = StringIO()
    console._force_terminal = True
    console._color_system = None
    console.print(f"[bold]{CLIPBOARD}", style="red")
    assert console.file.getvalue() == "[bold]\\u001b]52;c;Y3VybCBldmls\n"  # rich drops the bell


def test_every_control_character_is_escaped_and_no_other():
    for code in [*range(0x100), 0x2028, 0x1F600]:
        control = code < 0x20 or 0x7F <= code < 0xA0
        shown = visible(chr(code))
        assert shown == (f"\\u{code:04x}" if control and chr(code) not in "\n\t" else chr(code))
    assert one_line("a\r\nb\\n") == "a\\r\\nb\\n"
    assert as_field("a\tb\nc\u2028d\x1b") == "a\\tb\\nc\\u2028d\\u001b"


def test_a_token_has_a_label_without_control_characters():
    tokenizer = tokenizer_from_json(evil_tokenizer())
    words = [i for i in range(tokenizer.vocab_size) if "52;c" in tokenizer.decode([i])]
    assert words
    for token in words:
        label = label_of(token, tokenizer)
        assert label.startswith("␛]52;c;Y3VybCBldmls␇⟨9b⟩8m")
