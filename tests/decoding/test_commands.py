"""The verbs that write, score and evaluate, as a shell sees them."""

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearhead.api import bleu_and_perplexity
from clearhead.cli import main
from clearhead.cli.lines import _chunks, _count_lines
from clearhead.cli.terminal import one_line
from clearhead.config import ModelConfig
from clearhead.interop.model_folder import load_model, save_model
from clearhead.models import build_model
from clearhead.text.tokenizer import load_tokenizer
from clearhead.text.train import train_bpe
from tests.signals import listen_to_ctrl_c

SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "max_length": 40, "init_std": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model folders `mt`, `mt2` and `lm`, which share a tokenizer."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_bpe(["ein Hund läuft", "a dog runs on the green grass 你好"] * 9, 300)
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    for seed, (name, family) in enumerate(
        {"mt": "encoder-decoder", "mt2": "encoder-decoder", "lm": "decoder"}.items()
    ):
        config = ModelConfig(family=family, vocab_size=tokenizer.vocab_size, **SIZES)
        model = build_model(config, seed=seed)
        save_model(model, folder / name, tokenizer=folder / "tokenizer")
    return folder


def clearhead(*arguments: object, given: str | bytes = "") -> subprocess.CompletedProcess[str]:
    given = given.encode() if isinstance(given, str) else given
    run = subprocess.run(
        [sys.executable, "-m", "clearhead", *map(str, arguments)], input=given, capture_output=True
    )
    out, err = run.stdout.decode(), run.stderr.decode()
    return subprocess.CompletedProcess(run.args, run.returncode, out, err)


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """As `clearhead`, in this process, which has torch imported already."""

    def run(*arguments: object, given: str | bytes = "") -> subprocess.CompletedProcess[str]:
        given = given.encode() if isinstance(given, str) else given
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        status = main([*map(str, arguments)])
        return subprocess.CompletedProcess(arguments, status, *capsys.readouterr())

    return run


def start(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "clearhead", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=listen_to_ctrl_c,
    )


@pytest.mark.slow
def test_a_line_in_is_a_line_out_in_order_and_empty_lines_stay(
    folder: Path, tmp_path: Path, inside
):
    lines = ["a dog runs", "", "ein Hund", "   ", "the green grass on the green grass", "a"]
    piped = clearhead("translate", folder / "mt", "--max-new", 5, given="\n".join(lines) + "\n")
    assert (piped.returncode, piped.stderr) == (0, "")
    translated = piped.stdout.split("\n")
    assert len(translated) == 7 and translated[1] == translated[3] == ""
    (tmp_path / "in").write_text("\n".join(lines), encoding="utf-8")
    whole = inside(
        "translate", folder / "mt", "--max-new", 5, "--format", "jsonl",
        "--input", tmp_path / "in", "--output", tmp_path / "out", "--n-best", 2,
    )  # fmt: skip
    assert (whole.returncode, whole.stdout) == (0, "")
    rows = [json.loads(line) for line in (tmp_path / "out").read_text("utf-8").splitlines()]
    assert [row["source"] for row in rows] == lines
    assert [len(row["translations"]) for row in rows] == [2, 0, 2, 0, 2, 2]
    best = rows[0]["translations"][0]
    assert best["score"] >= rows[0]["translations"][1]["score"]
    assert sum(best["log_probs"]) / len(best["tokens"]) == pytest.approx(best["score"])


def test_more_translations_than_the_beam_is_wide_are_searched_with_a_note(folder: Path, inside):
    options = ("translate", folder / "mt", "--max-new", 3, "--n-best", 3)
    note = "note: --n-best 3 needs as wide a beam; searching with --beam 3 instead of 2\n"
    assert note in inside(*options, "--beam", 2, given="ein Hund\n").stderr
    assert "note: " not in inside(*options, "--beam", 3, given="ein Hund\n").stderr


def test_where_the_first_line_looked_is_drawn_and_lines_stay_lines(
    folder: Path, tmp_path: Path, inside, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    picture = tmp_path / "attention.svg"
    options = ("translate", folder / "mt", "--max-new", 5)
    plain = inside(*options, given="\nein Hund\na dog\n")
    drawn = inside(*options, "--attention", picture, given="\nein Hund\na dog\n")
    assert drawn.stdout == plain.stdout
    head, *columns, last, told = drawn.stderr.splitlines()
    assert head.startswith("cross-attention, decoder layer 0") and told == f"drawn: {picture}"
    assert len(columns) > 5 and last.strip()
    svg = picture.read_text(encoding="utf-8")
    tokens = len(load_tokenizer(folder / "mt" / "tokenizer.json").encode("ein Hund")) + 1
    assert svg.count("<title>") == 5 * tokens and "&lt;eos&gt;" in svg
    monkeypatch.setenv("COLUMNS", "10")
    narrow = inside(*options, "--attention", picture, given="ein Hund\n")
    assert narrow.stderr == f"drawn: {picture}\n"
    wrong = inside(*options, "--attention", picture, "--layer", 3, given="ein Hund\n")
    assert "--layer 3 is not one of this model's, which has 0 to 0; try --layer 0" in wrong.stderr
    told = inside(*options, "--attention", "picture.jpg")
    assert told.returncode == 2 and "'picture.jpg' does not end in .svg" in told.stderr


def test_exact_lines_are_counted_without_sacrebleu(folder: Path, tmp_path: Path, inside):
    lines = ["ein Hund", "a dog", "läuft"]
    (tmp_path / "source").write_text("\n".join(lines), encoding="utf-8")
    options = ("--max-new", 4, "--beam", 1)
    written = inside("translate", folder / "mt", *options, given="\n".join(lines)).stdout
    right = written.splitlines()
    (tmp_path / "reference.gz").write_bytes(gzip.compress("\n".join([*right[:2], "?"]).encode()))
    files = ("--source", tmp_path / "source", "--reference", tmp_path / "reference.gz")
    run = inside("evaluate", folder / "mt", *files, *options, "--exact")
    assert run.stdout == f"exact   66.67% of 3 lines ({tmp_path / 'source'})\n"
    assert run.stderr == "translating 3 lines …\n"
    run = inside("evaluate", folder / "mt", *files, *options, "--exact", "--format", "jsonl")
    assert json.loads(run.stdout)["n_lines"] == 3


def test_backslashes_are_text_and_only_line_ends_are_spelt():
    assert one_line("\\frac{a}{b} C:\\new") == "\\frac{a}{b} C:\\new"
    assert one_line("two\nlines\r\n") == "two\\nlines\\r\\n"


@pytest.mark.slow
def test_an_output_is_not_emptied_for_an_input_that_is_itself_or_is_not_there(
    folder: Path, tmp_path: Path, inside
):
    kept = tmp_path / "kept.txt"
    kept.write_text("ein Hund\n")
    again = inside("translate", folder / "mt", "--input", kept, "--output", kept)
    assert again.returncode == 2 and "is the input itself; name another file" in again.stderr
    with kept.open() as file:
        command = ["translate", str(folder / "mt"), "--output", str(kept)]
        piped = subprocess.run(
            [sys.executable, "-m", "clearhead", *command],
            stdin=file,
            capture_output=True,
            text=True,
        )
    assert piped.returncode == 2 and "is the input itself" in piped.stderr
    assert kept.read_text() == "ein Hund\n"
    missing = inside("translate", folder / "mt", "--input", tmp_path / "no", "--output", kept)
    assert missing.returncode == 2 and "there is no file" in missing.stderr
    folders = inside("translate", folder / "mt", "--input", tmp_path, "--output", kept)
    assert folders.returncode == 2 and "cannot be read (Is a directory)" in folders.stderr
    assert kept.read_text() == "ein Hund\n"


def test_a_byte_order_mark_is_no_part_of_the_first_line(folder: Path, tmp_path: Path, inside):
    marked = inside("translate", folder / "mt", "--format", "jsonl", given="\ufeffein Hund\n")
    assert json.loads(marked.stdout)["source"] == "ein Hund"
    (tmp_path / "source").write_text("\ufeffein Hund\n", encoding="utf-8")
    files = ["--source", tmp_path / "source", "--reference", tmp_path / "reference"]
    plain = inside("translate", folder / "mt", given="ein Hund\n").stdout
    (tmp_path / "reference").write_text(f"\ufeff{plain}", encoding="utf-8")
    assert "exact   100.00%" in inside("evaluate", folder / "mt", *files, "--exact").stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tokenize", "bogus"], "--tokenize bogus is not known to sacrebleu; choose from none"),
        (["--resamples", "-3"], "--resamples -3 must be a whole number of at least 0"),
        (["--against", "mt2", "--exact"], "leave out --exact"),
        (["--against", "mt2", "--resamples", "0"], "try --resamples 1000"),
    ],
)
def test_a_wrong_way_of_scoring_is_told_before_anything_is_translated(
    folder: Path, tmp_path: Path, inside, monkeypatch, options, message
):
    pytest.importorskip("sacrebleu", reason="needs the extra eval")
    monkeypatch.setattr(bleu_and_perplexity, "translate_lines", None)  # not reached
    (tmp_path / "lines").write_text("ein Hund\n")
    files = ["--source", tmp_path / "lines", "--reference", tmp_path / "lines"]
    told = inside("evaluate", folder / "mt", *files, *options)
    assert told.returncode == 2 and message in told.stderr.replace("\n", " ")


def test_a_prompt_is_answered_in_the_file_and_the_format_that_are_asked_for(
    folder: Path, tmp_path: Path, inside
):
    out = tmp_path / "out.jsonl"
    asked = ["--prompt", "a dog", "--max-new", 3, "--format", "jsonl", "--output", out]
    assert inside("generate", folder / "lm", *asked).returncode == 0
    assert json.loads(out.read_text())["prompt"] == "a dog"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "lm", "--prompt", "X", "--input", "/no"], "--prompt and --input both give"),
        (["translate", "mt", "--layer", "99"], "--layer belongs to --attention; leave it out, or"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(folder: Path, inside, arguments, message):
    verb, model, *options = arguments
    told = inside(verb, folder / model, *options)
    assert told.returncode == 2 and message in told.stderr


def test_a_temperature_is_refused_beside_greedy(folder: Path, inside):
    told = inside("generate", folder / "lm", "--greedy", "--temperature", 1)
    assert "--temperature: not allowed with argument --greedy" in told.stderr


def test_a_run_that_has_no_model_yet_says_how_it_gets_one(tmp_path: Path, inside):
    (tmp_path / "recipe.toml").touch()
    told = inside("translate", tmp_path)
    assert told.returncode == 2 and "has not written its model yet" in told.stderr


@pytest.mark.slow
def test_a_line_that_comes_alone_is_answered_at_once(folder: Path):
    process = start("translate", folder / "mt", "--max-new", 3, "--beam", 1)
    assert process.stdin and process.stdout
    for _ in range(2):
        process.stdin.write("ein Hund läuft\n".encode())
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")  # before the input has ended
    process.stdin.close()
    assert process.wait() == 0


@pytest.mark.slow
def test_generation_is_repeatable_streams_and_obeys(folder: Path, inside):
    options = ("generate", folder / "lm", "--max-new", 6, "--seed", 3)
    one, other = (inside(*options, given="a dog\n\nthe green\n") for _ in range(2))
    assert one.stdout == other.stdout and one.stdout.count("\n") == 3
    assert one.stdout.split("\n")[1] == ""
    answer = clearhead(
        "generate", folder / "lm", "--prompt", "a dog", "--only", "yes", "--only", "no"
    )
    assert answer.stdout in ("yes\n", "no\n")


def test_scores_are_those_of_the_model_and_evaluation_says_how_it_was_done(
    folder: Path, tmp_path: Path, inside
):
    scored = inside("score", folder / "mt", given="ein Hund\ta dog\n\n")
    assert scored.returncode == 0
    log_prob, n = scored.stdout.splitlines()[0].split("\t")
    assert float(log_prob) < 0 and int(n) > 1 and scored.stdout.endswith("\n\n")
    assert "line 1 is not a pair" in inside("score", folder / "mt", given="no tab\n").stderr
    (tmp_path / "text").write_text("a dog runs\n\non the grass\n", encoding="utf-8")
    found = inside("evaluate", folder / "lm", "--text", tmp_path / "text", "--format", "jsonl")
    measures = json.loads(found.stdout)
    assert measures["perplexity_per_byte"] < measures["perplexity_per_token"]
    (tmp_path / "text").write_text("unintelligibility uncharacteristically\n", encoding="utf-8")
    found = inside("evaluate", folder / "lm", "--text", tmp_path / "text")
    per_word = next(line for line in found.stdout.splitlines() if "per word" in line)
    assert re.search(r"— +\(\d\.\de\+\d+: worse than a choice among a million words", per_word)
    pytest.importorskip("sacrebleu", reason="needs the extra eval")
    (tmp_path / "source").write_text("ein Hund\nläuft\n", encoding="utf-8")
    (tmp_path / "reference").write_text("a dog\nruns\n", encoding="utf-8")
    files = ("--source", tmp_path / "source", "--reference", tmp_path / "reference")
    run = inside(
        "evaluate", folder / "mt", *files, "--max-new", 4, "--against", folder / "mt2",
        "--resamples", 20,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"{tmp_path / 'source'}: 2 lines\nBLEU")
    assert "|tok:13a|" in run.stdout and "no difference shown (p = " in run.stdout


@pytest.mark.parametrize(
    ("verb", "model", "given", "message"),
    [
        ("translate", "mt", b"a dog\ncaf\xe9\n", "line 2: byte 4 (0xe9) is not UTF-8"),
        ("generate", "lm", b"caf\xe9\n", "line 1: byte 4 (0xe9) is not UTF-8"),
        ("generate", "lm", b"x" * 200, "line 1 has 200 tokens, but the model takes 40"),
        (
            "translate",
            "lm",
            b"a\n",
            "a language model is used with: clearhead generate",
        ),
        (
            "generate",
            "mt",
            b"a\n",
            "a translator is used with: clearhead translate",
        ),
        ("translate", "nowhere", b"a\n", "is not a folder"),
    ],
)
def test_bad_input_is_one_clear_line(folder: Path, verb, model, given, message, inside):
    real = b"\xe9" in given and model == "mt"
    run = (clearhead if real else inside)(verb, folder / model, "--max-new", 3, given=given)
    assert run.returncode == 2
    assert message in run.stderr and run.stderr.count("\n") == 1
    if real:
        assert run.stdout.count("\n") == 1  # the line before it was answered


def test_a_line_that_is_too_long_is_cut_if_asked_and_reported(folder: Path, inside):
    run = inside(
        "translate", folder / "mt", "--max-new", 3, "--too-long", "cut", given="x" * 99 + "\na\n"
    )
    assert run.returncode == 0 and run.stdout.count("\n") == 2
    assert (
        run.stderr == "clearhead: line 1 has 100 tokens, but the model takes 40: its end was cut\n"
    )


@pytest.mark.slow
def test_a_closed_pipe_ends_it_without_a_word(folder: Path):
    process = start("translate", folder / "mt", "--max-new", 3, "--beam", 1)
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(b"a dog\n")
    process.stdin.flush()
    process.stdout.readline()
    process.stdout.close()
    try:
        process.stdin.write(b"a dog\n" * 50)
        process.stdin.close()
    except BrokenPipeError:
        pass
    assert process.stderr.read() == b""
    assert process.wait() == 128 + signal.SIGPIPE


def test_whatever_stops_the_reading_reaches_the_caller():
    def lines() -> Iterator[bytes]:
        yield b"one\n"
        raise MemoryError

    found: list[object] = []

    def read() -> None:
        try:
            found.extend(_chunks(lines(), Path("a file")))
        except MemoryError as error:
            found.append(error)

    thread = threading.Thread(target=read, daemon=True)  # which could wait for ever
    thread.start()
    thread.join(20)
    assert [type(each) for each in found] == [list, MemoryError]


def test_the_lines_of_a_packed_file_are_not_counted_in_its_bytes(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\ntwo\n" * 99))
    assert _count_lines(tmp_path / "a.txt") == 2
    assert _count_lines(tmp_path / "a.gz") is None


@pytest.mark.slow
def test_ctrl_c_ends_it_with_one_line(folder: Path):
    process = start("translate", folder / "mt", "--max-new", 3, "--beam", 1)
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(b"a dog\n")
    process.stdin.flush()
    process.stdout.readline()  # it is at work
    process.send_signal(signal.SIGINT)
    assert process.wait() == 128 + signal.SIGINT
    assert process.stderr.read() == b"clearhead: interrupted\n"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_on_a_terminal_it_talks(folder: Path):
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "clearhead", "translate", folder / "mt", "--max-new", "3"],
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
    )  # fmt: skip
    os.write(ours, b"caf\xe9\na dog\n")
    assert process.stdout and process.stderr
    seen = b""
    deadline = time.monotonic() + 60
    while seen.count(b"> ") < 3 and time.monotonic() < deadline:
        seen += os.read(process.stderr.fileno(), 1000)
    os.write(ours, b"\x04")  # Ctrl-D
    assert process.wait() == 0
    assert b"Ctrl-D ends" in seen and b"this line is not UTF-8; type it again" in seen
    assert process.stdout.read().count(b"\n") == 1  # the answer, and no prompt
    os.close(ours)
    os.close(theirs)


def test_a_folder_without_a_tokenizer_says_what_is_missing(folder: Path, tmp_path: Path, inside):
    save_model(load_model(folder / "lm"), tmp_path / "bare")
    run = inside("generate", tmp_path / "bare", given="a\n")
    assert run.returncode == 2 and "has no tokenizer.json" in run.stderr
