"""What first users did wrong, and what they read: the cause, and what to do, in one message."""

import json
import random
import shutil
import socket
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead as ch
from clearhead.api.languages import warn_of_other_language
from clearhead.cli import main
from clearhead.config import DataConfig
from clearhead.errors import ClearheadError, DataError, InputError
from clearhead.intake.cleaning import (
    DefectiveDocument,
    Defects,
    describe_defects,
    find_defects,
)
from clearhead.intake.invalid_input import Place
from clearhead.intake.out_of_step import find_shift, place_of_departure
from clearhead.intake.own_text import OwnText
from clearhead.intake.strange_text import strange_in

PO = '# German\n#, fuzzy\nmsgid ""\nmsgstr "Language: de\\n"\n\nmsgid "Open"\nmsgstr "Öffnen"\n'
XLIFF = '<?xml version="1.0"?>\n<xliff version="1.2"><file><body/></file></xliff>\n'
CHATS = [{"title": f"t{n}", "mapping": {f"id{n}": {"message": {"role": "user"}}}} for n in range(9)]
WORDS = ["the", "model", "reads", "a", "text", "and", "writes", "another", "one", "that", "says"]


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        assert main([*words]) == 2
        *before, message = capsys.readouterr().err.splitlines(keepends=True)
        assert message.startswith("clearhead: ") and message.endswith("\n")
        assert all(line.endswith(" …\n") for line in before), "progress, and nothing else"
        return message

    return run


def write(name: str, text: str | bytes) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.tmx", "x.unknown"])
def test_a_gettext_catalogue_given_as_a_table_is_named(name: str, said):
    message = said("new", "mine", "--table", write(name, PO))
    assert "is a gettext catalogue (PO)" in message and "rename" not in message
    assert f"mv {Path(name).resolve()} {Path('x.po').resolve()}" in message
    assert message.endswith("x.po\n")


@pytest.mark.parametrize("name", ["x.po", "x.txt"])
def test_a_gettext_catalogue_is_neither_text_nor_lines_to_translate(name: str, said):
    assert "is a gettext catalogue (PO)" in said("new", "mine", "--text", write(name, PO))
    message = said("translate", "copy-task", "--input", name, "--output", "out.txt")
    assert "is a gettext catalogue (PO), whose lines are not sentences" in message
    assert "--catalogue x.po" in message and not Path("out.txt").exists()


def test_a_text_about_catalogues_is_a_text(said):
    text = "How to write a catalogue:\n" + PO
    write("manual.txt", text)
    message = said("new", "mine", "--text", "manual.txt", "--minutes", "ten")
    assert message == (
        "clearhead: --minutes 'ten' is not a number; give one, such as --minutes 10\n"
    )
    assert "catalogue (PO)" not in said("new", "mine", "--text", "manual.txt")  # too short


@pytest.mark.parametrize("name", ["x.tmx", "x.csv"])
def test_xliff_is_named_whatever_its_name(name: str, said):
    message = said("new", "mine", "--table", write(name, XLIFF))
    assert "is XLIFF" in message and "give it as a table: --table" in message
    assert "is empty" not in message and "rename" not in message


def test_java_properties_are_neither_text_nor_lines_to_translate(said):
    write("de.properties", "menu.open=Öffnen\nmenu.close=Schließen\n" * 50)
    message = said("new", "mine", "--text", "de.properties")
    assert "is a Java properties file, and a model would learn its syntax" in message
    assert "prop2po -t SOURCE.properties " in message and "--table" in message
    message = said("translate", "copy-task", "--input", "de.properties")
    assert "is a Java properties file, whose lines are not sentences" in message


def test_import_asks_for_the_folder_to_write_and_for_a_folder_to_read(said):
    assert "needs OUT (the folder to write; it must not exist)" in said("import", "model.bin")
    write("model.bin", b"weights")
    remedy = "name the Hugging Face folder, with config.json and safetensors"
    assert said("import", "model.bin", "out") == f"clearhead: model.bin is a file; {remedy}\n"
    assert said("import", "modle", "out") == f"clearhead: modle is not there; {remedy}\n"


@pytest.mark.parametrize(
    ("magic", "what"),
    [(b"PK\x03\x04", "a zip archive; unpack it first: unzip"), (b"7z\xbc\xaf\x27\x1c", "7z x ")],
)
def test_an_archive_is_unpacked_whatever_it_is_given_as(magic: bytes, what: str, said):
    path = write("corpus.bin", magic + bytes(range(256)) * 4 + b"\n" * 7)
    for how in (["--table", path], ["--text", path], ["--source", path, "--target", path]):
        message = said("new", "mine", *how)
        assert what in message and "rename" not in message and "iconv" not in message


def test_a_folder_given_as_a_table_is_called_a_folder(said):
    write("po/de.csv", "a,b\n")
    message = said("new", "mine", "--table", "po")
    assert "po is a folder, where one file is needed" in message and "po/de.csv'" in message


def test_an_export_of_chats_says_how_its_messages_become_text(said):
    message = said("new", "mine", "--table", write("chats.json", json.dumps(CHATS)))
    assert "an export of conversations" in message and "--columns" not in message
    assert "jq -r '.[].mapping[].message.content.parts[]? | strings'" in message


def test_translations_by_key_are_joined_with_those_of_the_other_language(said, tmp_path: Path):
    english = {f"k{n}": f"Text {n}" for n in range(9)} | {"menu": {"open": "Open", "only": "Here"}}
    german = {f"k{n}": f"Der Text {n}" for n in range(9)} | {"menu": {"open": "Öffnen"}}
    write("OTHER.json", json.dumps(german))
    message = said("new", "mine", "--table", write("en.json", json.dumps(english)))
    assert "one object with a text under each key" in message and "--columns" not in message
    assert "--table pairs.tsv" in message
    if shutil.which("jq"):
        command = message.split("(OTHER.json): ")[1].split("; then give")[0]
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)
        pairs = Path("pairs.tsv").read_text(encoding="utf-8").splitlines()
        assert len(pairs) == 10 and pairs[-1] == "Open\tÖffnen"


def test_a_missing_file_offers_the_nearest_name(said):
    write("train.de", "a\n")
    message = said("new", "mine", "--source", "trian.de", "--target", "train.de")
    assert "there is no file" in message and "train.de'?" in message
    message = said("new", "mine", "--table", "no/such/x.csv")
    assert "there is no folder" in message and message.endswith("/no\n")


def test_a_path_of_windows_is_called_one(said):
    message = said("new", "mine", "--text", r"C:\Users\me\a.txt")
    assert "a path of Windows" in message and "'/mnt/c/Users/me/a.txt'" in message
    assert "a path of Windows" in said("new", "mine", "--table", "C:Usersmea.csv")  # by a shell


def test_one_side_of_a_pair_asks_for_the_other(said):
    write("a.de", "a\n")
    message = said("new", "mine", "--source", "a.de")
    assert "--source needs --target FILE" in message and "--text a.de" in message
    assert "--target needs --source FILE" in said("new", "mine", "--target", "a.de")


def test_files_out_of_step_say_where_they_part(said):
    draw = random.Random(3)
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(2, 20))) for _ in range(200)]
    other = [line.upper().replace("E", "") for line in lines]
    write("a.txt", "\n".join(lines) + "\n")
    write("b.txt", "\n".join(other[:120] + other[121:]) + "\n")
    message = said("new", "mine", "--source", "a.txt", "--target", "b.txt")
    assert "200 lines" in message and "add or remove the lines without a partner" in message
    near = int(message.split("part near line ")[1].split()[0])
    assert abs(near - 121) <= 3
    assert abs(place_of_departure(lines[:30] + lines[33:], other) - 30) <= 3


def lengths(n: int, seed: int = 3) -> list[str]:
    """Lines of random lengths."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 20))) for _ in range(n)]


def test_pairs_of_which_one_side_is_shifted_say_where():
    lines = lengths(300)
    other = [f"{line.upper().replace('E', '')} {'x' * (n % 7)}" for n, line in enumerate(lines)]
    assert find_shift(lines, other) is None
    found = find_shift(lines, [*other[:150], *other[151:], "The end."])
    assert found is not None and abs(found.start - 150) <= 3 and found.lines == -1
    assert found.stop > 290
    found = find_shift(lines, [*other[:80], "new", "new", *other[80:200], *other[202:]])
    assert found is not None and abs(found.start - 80) <= 4 and found.lines == 2
    assert abs(found.stop - 200) <= 4


@pytest.mark.parametrize("seed", range(8))
def test_pairs_whose_lengths_have_nothing_in_common_are_not_called_shifted(seed: int):
    lines = lengths(2000, seed)
    assert find_shift(lines, lengths(2000, seed + 100)) is None
    assert find_shift(lines[:-1], lines[1:]) is None, "each line is the answer to the one before"


def strange(**settings) -> str:
    """What is strange about a text with these settings of [data]."""
    return strange_in(DataConfig(vocab_size=300, **settings))


def test_a_shift_is_counted_among_the_defects():
    (first, *_) = describe_defects(Defects(documents=300, shift="from line 3 on"), width=900)
    assert first == (
        "Defects: the lines seem shifted, so that pairs do not belong together: repair the files, "
        "then make the recipe again. Besides these: none found in 300 documents."
    )
    assert describe_defects(Defects(documents=300)) == ["Defects: none found in 300 documents."]


def test_a_shifted_file_is_warned_of_with_its_line(tmp_path: Path):
    lines = lengths(300)
    for name, text in {"de": lines, "en": [*lines[:150], *lines[151:], "The end."]}.items():
        changed = [line.upper() if name == "en" else line for line in text]
        (tmp_path / name).write_text("\n".join(changed) + "\n", encoding="utf-8")
    said = strange(
        task="pairs", format="parallel", train=(str(tmp_path / "de"), str(tmp_path / "en"))
    )
    number = int(said.split("from about line ")[1].split()[0])
    assert abs(number - 151) <= 3 and "the lines no longer belong together" in said
    assert "look for a missing line of the target there" in said


@pytest.mark.parametrize(
    "line",
    [
        "[12/03/24, 10:03:00] Anna: {text}",
        "\u200e[12.03.24, 10:03:00] Anna Meier: {text}",
        "12/03/24, 10:03 - Anna: {text}",
        "3/12/24, 9:05\u202fPM - +49 151 234: {text}",
    ],
)
def test_an_export_of_a_chat_is_warned_of_and_the_command_removes_the_names(
    line: str, tmp_path: Path
):
    lines = [line.format(text=text) for text in lengths(40)]
    (tmp_path / "chat.txt").write_text("\n".join([*lines, "a second line"]), encoding="utf-8")
    said = strange(train=(str(tmp_path / "chat.txt"),))
    assert "nearly every line begins with a date and a name (a chat export)" in said
    if shutil.which("sed"):
        command = said.split("remove them first: ")[1]
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)
        left = (tmp_path / "messages.txt").read_text(encoding="utf-8").splitlines()
        assert left == [*lengths(40), "a second line"]
    (tmp_path / "chat.txt").write_text("\n".join(lengths(40)), encoding="utf-8")
    assert not strange(train=(str(tmp_path / "chat.txt"),))


def test_a_run_is_not_taken_for_prepared_data(said):
    write("lines.txt", "A line of text.\n" * 500)
    write("runs/base/recipe.toml", "")
    write("runs/base/log.txt", "")
    write("own/config.json", "{}")
    write("own/model.safetensors", b"")
    recipe = "base.toml"
    write(recipe, f'[data]\ntrain = ["{Path("lines.txt").resolve()}"]\nvocab_size = 300\n')
    message = said("train", recipe, "--prepared", "runs/base", "--folder", "runs/z3")
    assert "runs/base is a run, not prepared data; give --prepared prepared/base" in message
    for folder, what in {"runs/base": "a run", "own": "a model"}.items():
        before = sorted(Path(folder).rglob("*"))
        message = said("prepare", recipe, "--out", folder, "--overwrite")
        assert f"{folder} is {what}, not prepared data; give --out prepared/base" in message
        assert sorted(Path(folder).rglob("*")) == before


def test_a_generator_without_texts_has_no_answers_and_a_warning(caplog: pytest.LogCaptureFixture):
    model = ch.load("copy-task")
    texts = (text for text in ["1 2", "3"])
    assert len(model.translate(texts, max_new=1)) == 2
    assert caplog.text == ""
    assert model.translate(texts) == []
    assert "the generator gave no texts; if an earlier call has read them, give a list" in (
        caplog.text
    )
    with pytest.raises(DataError, match="one of them is empty"):
        ch.evaluate(hypothesis=texts, reference=["1"], resamples=0)
    caplog.clear()
    assert model.translate([]) == [] and caplog.text == ""


def test_the_target_of_a_decoder_is_called_its_continuation(caplog: pytest.LogCaptureFixture):
    ch.see("shakespeare-char", "ROMEO:", target=" I am")
    assert "target= is shown as the continuation of the text" in caplog.text
    caplog.clear()
    ch.see("copy-task", "1 2 3", target="1 2")
    assert not caplog.text


def test_a_port_in_use_is_called_so(said):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        message = said("play", "copy-task", "--port", port)
    assert f"port {port} is in use by another program; --port 0 takes a free port" in message


MODELS = """
import torch
from torch import nn

class Decoder(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.table, self.out = nn.Embedding(n, 8), nn.Linear(8, n)
    def forward(self, tokens):
        return self.out(self.table(tokens).cumsum(1))

class Nothing(Decoder):
    def forward(self, tokens):
        return None

class Floats(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5))
    def forward(self, x):
        return self.layers(x)

def of_50(): return Decoder(50)
def of_60(): return Decoder(60)
def nothing(): return Nothing(50)
def imports():
    import missing_too.inner
"""


def test_the_doctor_names_what_is_wrong_with_the_question(said):
    write("own.py", MODELS)
    write("needs.py", "import flash_attn_of_nobody.layers\n")
    message = said("doctor", "needs.py:build")
    assert message.endswith("; install flash_attn_of_nobody into this Python\n")
    assert said("doctor", "own.py:imports").endswith("; install missing_too into this Python\n")
    floats = "the first layer is Linear and takes floats, not token ids; give a model with an emb"
    assert floats in said("doctor", "own.py:Floats", "--kind", "encoder")
    with pytest.raises(ClearheadError, match=r"^the first layer is Linear and takes floats"):
        ch.examine("own.py:Floats", kind="decoder", vocab_size=8)
    with pytest.raises(ClearheadError, match=r"^the model takes one input \(tokens\), and an enco"):
        ch.examine("own.py:nothing", kind="encoder-decoder")


def test_vocabularies_that_differ_are_named(said):
    write("own.py", MODELS)
    report = ch.diff("own.py:of_50", "own.py:of_60", kind="decoder")
    assert report.vocabularies == (50, 60)
    assert "50 and 60 tokens; build both models with the same number" in str(report)
    with pytest.raises(ClearheadError, match=r"vocabulary of 50 tokens and the port one of 60, so"):
        ch.diff("own.py:of_50", "own.py:of_60", torch.tensor([[1, 2, 3, 4, 55]]))


@pytest.mark.parametrize(
    ("name", "list_name", "key"),
    [("chat.jsonl", "messages", "content"), ("chat.json", "conversations", "value")],
)
def test_messages_of_conversations_become_text(name: str, list_name: str, key: str, said):
    records = [
        {"id": f"number {n}", list_name: [{"role": "user", key: f"Hi {n}"}, {key: f"Ho {n}"}]}
        for n in range(9)
    ]
    lines = "\n".join(map(json.dumps, records))
    write(name, lines if name.endswith("l") else json.dumps(records))
    message = said("new", "mine", "--table", name)
    assert f"the field {list_name!r} holds the messages of a conversation" in message
    if shutil.which("jq"):
        command = message.split("one below the other: ")[1].strip().split(";")[0]
        subprocess.run(command, shell=True, check=True)
        (made,) = Path().glob("*messages*.txt")
        assert made.read_text(encoding="utf-8").splitlines()[:3] == ["Hi 0", "Ho 0", "Hi 1"]


def test_many_swapped_rows_are_said_to_be_worth_swapping_back():
    place = Place(Path("x.tsv"), 1)
    findings = [DefectiveDocument("swapped", "", place, ("a", "b"))] * 46
    text = " ".join(" ".join(describe_defects(Defects(findings, 100))).split())
    assert "half of the rows have changed sides: swap them back" in text
    text = " ".join(describe_defects(Defects(findings, 150)))
    assert "31% of the rows have changed sides: swap them back" in text
    assert "swap them back" not in " ".join(describe_defects(Defects(findings, 1000)))


def test_a_folder_of_pdf_files_is_named_as_it_was_given(said):
    write("full/a.txt", "A line.\n" * 50)
    write("nested/deep/x.pdf", b"%PDF-1.7")
    message = said("new", "mine", "--source", "full", "--target", "nested")
    assert message.startswith("clearhead: --target: ") and "data.train" not in message
    assert "a PDF is not text; convert it first: pdftotext " in message
    assert message.endswith("/nested/deep/x.pdf\n")
    message = said("new", "mine", "--text", "nested")
    assert "a PDF is not text" in message and "data.train" not in message


@pytest.mark.parametrize("data", [None, "."])
def test_a_folder_of_another_ending_says_which(
    data: str | None, said, monkeypatch: pytest.MonkeyPatch
):
    if data is not None:  # the folder is in that of the data, as if it were a downloaded one
        monkeypatch.setenv("CLEARHEAD_DATA", str(Path(data).resolve()))
    for n in range(3):
        write(f"notes/{n}.md", "text\n")
    message = said("new", "mine", "--text", "notes")
    assert "it holds 3 files that end in .md" in message and "notes/*.md" in message


def test_wrong_words_on_the_command_line_are_answered_in_one_line(said):
    assert said("train", "copy-task", "--threads", "two") == (
        "clearhead: --threads 'two' is not a whole number; give one, such as --threads 10\n"
    )
    assert "choose from" in said("evaluate", "copy-task", "--split", "tset")
    assert said("new") == (
        "clearhead: clearhead new needs NAME (name of the recipe, such as my-pairs); see clearhead "
        "new --help\n"
    )
    assert "--minutes needs a value" in said("new", "mine", "--minutes")


def test_one_label_alone_is_said_to_be_no_classifier(tmp_path: Path):
    from clearhead.intake.own import own_table

    rows = [f"{' '.join(WORDS[n : n + 6])},praise" for n in range(8)]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    found = own_table(path)
    assert found.template == "my-text"
    assert "Not a classifier: column 'label' has 'praise' in every row" in found.summary


GERMAN = "Das Haus steht am Ende der Straße|Wir haben heute leider keine Zeit|Die Kinder spielen im Garten hinter dem Haus|Er liest jeden Abend ein gutes Buch"  # noqa: E501
ENGLISH = "The house stands at the end of the street|Unfortunately we have no time today|The children are playing in the garden behind the house|He reads a good book every evening"  # noqa: E501


@pytest.mark.parametrize("n_swapped", [60, 455])
def test_swapped_pairs_are_found_even_if_they_are_half(n_swapped: int, tmp_path: Path):
    pytest.importorskip("py3langid", reason="needs the extra corpus")
    pairs = [
        (f"{german} ({number})", f"{english} ({number})")
        for number, (german, english) in enumerate(
            zip(GERMAN.split("|") * 228, ENGLISH.split("|") * 228)
        )
    ][:910]
    swapped = set(random.Random(1).sample(range(910), n_swapped))
    rows = [pair[::-1] if number in swapped else pair for number, pair in enumerate(pairs)]
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    config = DataConfig(
        task="pairs", format="tsv", columns=(1, 2), train=(str(path),), vocab_size=300
    )
    found = {each.place.number - 1 for each in find_defects(config).of("swapped")}
    others = set(range(910)) - swapped  # half of them: either order may be the usual one
    assert found == swapped or (n_swapped == 455 and found == others)


def archive(name: str, mode: str) -> str:
    """A tar archive with a text in it."""
    write("corpus.txt", "A line of text.\n" * 999)
    with tarfile.open(name, mode) as file:  # type: ignore[call-overload]
        file.add("corpus.txt")
    return name


@pytest.mark.parametrize("name", ["c.tar", "c.tgz", "c.tar.gz", "c.txt"])
def test_a_tar_archive_is_called_one(name: str, said):
    path = archive(name, "w:gz" if "gz" in name else "w")
    for how in ("--text", "--table") if name != "c.txt" else ("--text",):
        message = said("new", "mine", how, path)
        assert "is an archive (tar); unpack it" in message and "tar -xf " in message


@pytest.mark.parametrize(
    "content",
    [b"text\n" * 20 + bytes(40) + b"text\n" * 20, b"abc\0\0" * 3 + bytes(range(256)) * 20],
)
def test_a_file_with_zero_bytes_is_no_text(content: bytes, said):
    assert "is not text: " in said("new", "mine", "--text", write("x.txt", content))
    assert "is not text: " in said("translate", "copy-task", "--input", "x.txt")


def test_a_nested_file_of_translations_is_said_to_be_one(said):
    inner = {"open": "Open", "close": "Close", "help": {"about": "About"}}
    write("en.json", json.dumps({"menu": inner}))
    assert "(i18n JSON), not a table of rows" in said("new", "mine", "--table", "en.json")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["train", "copy-task", "--train.learning_rate", "3"], "did you mean '--train.lr'?"),
        (["train", "copy-task", "--lr", "3"], "did you mean '--train.lr'?"),
        (["train", "copy-task", "--batch-size", "3"], "did you mean '--batches.batch_size'?"),
        (["train", "copy-task", "--model.n_embd", "3"], "did you mean '--model.d_model'?"),
        (["train", "copy-task", "--train.hidden_size=3"], "did you mean '--model.d_model'?"),
        (["train", "copy-task", "--model.num_layers", "3"], "did you mean '--model.n_layers'?"),
        (["train", "copy-task", "--dropout", "0"], "did you mean '--model.p_dropout'?"),
        (["train", "copy-task", "--seed", "0"], "did you mean '--train.seed'?"),
        (["train", "copy-task", "--train.device", "cuda"], "on the accelerator that torch finds"),
        (["train", "copy-task", "--train.zzz", "3"], "see clearhead train --help"),
        (["train", "copy-task", "--resume"], "the same command resumes by itself; leave it out"),
        (["train", "copy-task", "--resume-from", "x"], "the same command resumes by itself"),
        (
            ["train", "copy-task", "--data.vocab_size", "20"],
            "at least 259 (256 bytes and 3 special tokens); try data.vocab_size=4000",
        ),
        (["generate", "shakespeare-char", "--max-tokens", "9"], "did you mean '--max-new'?"),
        (["translate", "copy-task", "--num-beams", "9"], "did you mean '--beam'?"),
        (["translate", "tatoeba-zh-en"], "It translates the other way, en to zh"),
        (["plan", "llama-3-8b"], "--tokens is missing: a preset has no recipe"),
        (["plan", "llama-3-8b", "--utilisation", "40"], "did you mean --utilisation 0.4?"),
        (["plan", "gpt2", "--kind", "RTX5090"], "there is no accelerator 'RTX5090'; "),
        (["plan", "gpt2", "--kind", "h100"], "did you mean --kind H100? The table has "),
        (
            ["play", "copy-task", "--host", "256.0.0.1"],
            "--host 256.0.0.1 must be an address of this machine; try --host 127.0.0.1",
        ),
        (["classify", "copy-task"], "a translator is used with: clearhead translate …"),
        (["classify", "shakespeare-char"], "a language model is used with: clearhead generate …"),
        (
            ["import", "https://huggingface.co/gpt2", "out"],
            "run first: hf download gpt2 --local-dir gpt2; then name the folder gpt2",
        ),
        (
            ["translate", "https://huggingface.co/Helsinki-NLP/opus-mt-de-en/tree/main"],
            "hf download Helsinki-NLP/opus-mt-de-en --local-dir opus-mt-de-en",
        ),
        (["translate", "copy-task", "hello"], "echo TEXT | clearhead translate MODEL"),
        (["translate", "copy-task", "--temperature", "1"], "with --beam (--beam 1 is greedy)"),
        (["generate", "shakespeare-char", "hello"], "give the text as --prompt TEXT"),
        (
            ["generate", "shakespeare-char", "--beam", "4"],
            "with --temperature, --top-k and --top-p",
        ),
        (["generate", "shakespeare-char", "--prompt", ""], "--prompt is empty, and this model"),
        (["generate", "shakespeare-char", "--top-p", "90"], "did you mean --top-p 0.9?"),
        (["translate", "copy-task", "--catalogue", "x.po", "--leave-below", "40"], "-below 0.4?"),
        (["translate", "a text to translate"], "it looks like a text, where the model is expected"),
        (
            ["export", "new-folder", "copy-task", "--to", "onnx"],
            "name the model first, and then the",
        ),
        (["serve", "copy-task, tatoeba-en-zh"], "name each apart: copy-task tatoeba-en-zh"),
        (["train", "copy-task", "--train.start_from", "copy-task"], "give its folder: '"),
        (["export", "copy-task", "out"], "needs --to huggingface|ctranslate2|onnx|web; see"),
        (["new", "mine", "--text", ""], "--text is empty; give the path of a file or a folder"),
        (["translate", "tatoeba-en-zh", "--split", "zh-en"], "translates en to zh; give en-zh"),
        (["calibrate", "copy-task"], "calibrate a copy (in Python: clearhead.load('copy-task')"),
        (["evaluate", "copy-task", "--source", "no", "--reference", "no"], "there is no file no; "),
        (
            ["see", "copy-task", "1 2 3", "--html", "no/x.html"],
            "make its folder first: mkdir -p no",
        ),
    ],
)
def test_what_is_written_as_elsewhere_is_answered_with_our_own(words, remedy: str, said):
    message = said(*words)
    assert remedy in message, message


def test_one_allowed_text_with_a_comma_is_allowed_and_noted(capsys: pytest.CaptureFixture[str]):
    words = ("--prompt", "Well", "--only", "yes, no", "--max-new", "20")
    assert main(["generate", "shakespeare-char", *words]) == 0
    written = capsys.readouterr()
    assert written.out == "yes, no\n"
    assert "give it once for each: --only yes --only no" in written.err


def test_files_of_the_wrong_kind_are_named_with_what_to_do(said):
    write("own.txt", "A plain line.\n" * 9)
    message = said("prepare", "copy-task", "--out", "own.txt")
    assert message.endswith("--out own.txt: own.txt is a file; give the path of a folder\n")
    assert "give it as text: --text " in said("new", "mine", "--table", "own.txt")
    assert "make a recipe for it with clearhead new" in said("prepare", "own.txt")
    write("mine.toml", "")
    assert "did you mean 'mien.toml'?" not in said("prepare", "mine.tomll")
    assert "did you mean 'mine.toml'?" in said("prepare", "mien.toml")
    Path("runs/first-run").mkdir(parents=True)
    assert "did you mean 'runs/first-run'?" in said("translate", "frist-run")
    Path("mine.toml").unlink()
    rows = "".join(f"a cat {n} is here,eine Katze {n} ist hier\n" for n in range(60))
    write("pairs.csv", f"source,target\n{rows}well, a dog is here,ein Hund ist hier\n")
    message = said("new", "mine", "--table", "pairs.csv")
    assert (
        "line 62: the line has 3 column(s), but 2 are expected" in message
        and "separator" in message
    )
    labels = "".join(f"{'good' if n % 2 else 'bad'}\tthis is text {n} of many\n" for n in range(60))
    write("labels.tsv", f"label\ttext\n{labels}")
    message = said("new", "mine", "--table", "labels.tsv", "--columns", "label", "text")
    assert "the text is first and the label second: --columns text label" in message


def test_csv_whose_texts_contain_commas_without_quotes_is_said_to_be_split(said):
    rows = [f"ein Hund, der {n} Mal bellt,a dog that barks {n} times" for n in range(30, 10, -1)]
    rows += [f"eine Katze schläft {n} Mal,a cat sleeps {n} times" for n in range(40)]
    write("pairs.csv", "\n".join(rows))
    message = said("new", "mine", "--table", "pairs.csv")
    assert "row 1 has 3 cells and most others have 2" in message
    assert "save the table with quotes around each text" in message


def test_a_table_that_is_no_parquet_is_not_called_damaged(said):
    write("pairs.parquet", "source,target\na cat is here,eine Katze ist hier\n" * 9)
    message = said("new", "mine", "--table", "pairs.parquet")
    assert "does not begin as Parquet does" in message and "rename it to end in .csv" in message


def test_files_are_named_for_what_they_are_though_their_names_say_otherwise(said):
    write("a.gz", "Zwei Hunde\n" * 9)
    message = said("new", "mine", "--source", "a.gz", "--target", "a.gz")
    assert "not packed by gzip, although its name ends in .gz" in message
    write("fr.mo", b"\xde\x12\x04\x95" + bytes(99))
    assert "make one: msgunfmt " in said("new", "mine", "--table", "fr.mo")
    write("ui.pot", 'msgid ""\nmsgstr ""\n\nmsgid "Open"\nmsgstr ""\n')
    assert "is a template (POT)" in said("new", "mine", "--table", "ui.pot")
    write("config.yaml", "model:\n  d_model: 64\n")
    assert "a recipe is a TOML file" in said("train", "config.yaml")
    assert "hf download openai/gpt2" in said("import", "openai/gpt2", "out")
    Path("runs/mine").mkdir(parents=True)
    assert "did you mean runs/mine?" in said("runs", "mine")


def test_many_rows_without_a_translation_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    rows = [f"a cat {n} is here\t{f'eine Katze {n} ist hier' if n % 2 else ''}" for n in range(400)]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows), encoding="utf-8")
    ch.recipe_for("mine", OwnText.table(tmp_path / "pairs.tsv"), minutes=0.05)
    assert "200 of 400 rows have an empty cell in one of the columns 1, 2, and are" in caplog.text


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_lines_in_another_encoding_are_converted_by_a_command(encoding: str, said):
    write("x.de", ("Der Hund läuft über die Straße.\n" * 5).encode(encoding))
    for how in (
        ["translate", "copy-task", "--input", "x.de"],
        ["evaluate", "copy-task", "--source", "x.de", "--reference", "x.de"],
    ):
        message = said(*how)
        assert "not UTF-8" in message and "iconv -f " in message and "x.utf8.de" in message


def test_a_damaged_configuration_is_named_with_its_file(said):
    shutil.copytree(ch.load("copy-task").folder, "damaged")
    config = Path("damaged/config.json")
    config.write_text(config.read_text("utf-8").replace('"n_heads": 4', '"n_heads": 7'), "utf-8")
    assert "(in damaged/config.json)" in said("translate", "damaged")


def test_code_that_fails_is_named_with_its_line_and_names_with_the_nearest(said):
    write("own.py", "import torch\n\ndef build():\n    return torch.zeros(3).foo\n")
    write("bad.py", "import torch\n\nx = undefined + 1\n")
    assert "build() failed in own.py, line 4: AttributeError" in said("doctor", "own.py:build")
    assert "own.py has no 'biuld'; did you mean 'build'?" in said("doctor", "own.py:biuld")
    assert "there is no file 'onw.py'; did you mean 'own.py'?" in said("doctor", "onw.py:build")
    assert "bad.py, line 3 cannot be imported: NameError" in said("doctor", "bad.py:x")


GERMAN_LINES = [
    "Der Hund geht mit der Katze in den Garten.",
    "Wir gehen morgen in die Stadt.",
] * 2
ENGLISH_LINES = ["The dog goes into the garden with the cat today.", "We go to town tomorrow."] * 2


@pytest.mark.parametrize(
    ("texts", "side", "other"),
    [
        (["你好，世界。", "今天天气很好。"], "source", "seems to be Chinese"),
        (GERMAN_LINES, "source", "seems to be German"),
        (ENGLISH_LINES, "source", None),
        (["Kitten and <b>x</b>", "OK"], "source", None),
        (ENGLISH_LINES, "target", "translates into Chinese"),
        (["用 git commit 提交。", "好"], "target", None),
    ],
)
def test_text_in_another_language_than_the_name_says_is_warned_of(
    texts: list[str], side: str, other: str | None, caplog: pytest.LogCaptureFixture
):
    pytest.importorskip("py3langid")
    assert warn_of_other_language(texts, "tatoeba-en-zh", side=side) == (other is not None)
    assert (other or "") in caplog.text
    assert not warn_of_other_language(texts, "my-model", side=side)


def test_scores_that_mean_nothing_are_warned_of(caplog: pytest.LogCaptureFixture):
    pytest.importorskip("sacrebleu")
    ch.evaluate(hypothesis=["你好。"] * 2, reference=["Hello."] * 2, resamples=0)
    assert "no letter of the outputs occurs in the references" in caplog.text
    caplog.clear()
    ch.evaluate(hypothesis=["Hello."] * 2, reference=["Hello."] * 2, resamples=0)
    assert "hold the same lines, so every score is that of a perfect output" in caplog.text
    caplog.clear()
    ch.evaluate("copy-task", source=["1 2"], reference=["1 2"], exact=True)
    assert "source= and reference= hold the same lines" in caplog.text
    with pytest.raises(DataError, match=r"has 1 lines and reference 2, .* must belong to line n"):
        ch.evaluate("copy-task", source=["1 2"], reference=["1 2", "3"])


def test_what_the_tokenizer_has_not_learnt_is_warned_of(caplog: pytest.LogCaptureFixture):
    for model, prompt, warns in (
        ("shakespeare-char", "你好", True),
        ("shakespeare-char", "ROMEO: café", False),
        ("hongloumeng", "hello world", True),
        ("hongloumeng", "宝玉道", False),
    ):
        caplog.clear()
        ch.load(model).generate(prompt, max_new=1)
        assert ("the tokenizer has learnt no" in caplog.text) == warns, prompt


def test_a_drawn_translation_is_said_to_be_drawn(caplog: pytest.LogCaptureFixture):
    ch.see("copy-task", "1 2 3", temperature=0.5)
    assert "temperature=0.5: the translation is drawn at random" in caplog.text


def used_up():
    """A generator that has no more texts."""
    texts = iter([("1", "2")])
    next(texts)
    return texts


def load(name: str):
    return ch.load(name)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ch.load("tatoeba-zh-en"), r"clearhead\.train\(recipe\) .* other way, en to zh"),
        (lambda: load("copy-task").translate("1", "zh"), r"'zh' has no name: options are keywords"),
        (lambda: load("shakespeare-char").generate("1", 5), r"are keywords, such as max_new=50"),
        (lambda: ch.recipe_for("x", OwnText.pairs(used_up())), r"already used; give a list"),
        (lambda: ch.recipe_for("x", OwnText.texts(used_up())), r"already used; give a list"),
        (lambda: ch.recipe("copy-task", steps=9), r"write train=\{'steps': 9\}"),
        (lambda: ch.recipe("copy-task", hidden_size=9), r"write model=\{'d_model': 9\}"),
        (lambda: ch.recipe("copy-task", trian={}), r"no keyword 'trian'; did you mean 'train'"),
        (lambda: OwnText.pairs(["a"], ["b"]), r"OwnText\.columns\(sources, targets\)"),
        (
            lambda: OwnText.texts("one long string"),
            r"^texts is one string; write \[text\], or OwnText\.files\(path\)$",
        ),
        (lambda: OwnText.pairs("a"), r"^pairs is one string; write \[\(source, target\), …\]"),
        (
            lambda: load("shakespeare-char").translate("a"),
            r"a language model is used with: model\.generate\(…\)$",
        ),
        (
            lambda: ch.Corpus("m.de"),  # type: ignore[call-arg]
            r"prepare\(recipe\) returns one, .*recipe_for\(name, OwnText\.files\('m\.de'\)\)$",
        ),
        (
            lambda: ch.serve("copy-task, tatoeba-en-zh"),
            r"is one string; give a list: \['copy-task', 'tatoeba-en-zh'\]$",
        ),
        (lambda: ch.examine(torch.nn.Linear), r"is a class; give an object of it: Linear\(\)$"),  # type: ignore[arg-type]
        (
            lambda: ch.export("new-folder", "copy-task"),
            r"copy-task is a model; name the model first",
        ),
        (
            lambda: ch.train(ch.recipe("copy-task", train={"start_from": "copy-task"})),
            r"is a shipped model, and the key takes a folder; make a recipe .* give its folder: '",
        ),
        (lambda: ch.export("copy-task", "web", "out"), r"write export\(model, 'out', to='web'\)"),
        (lambda: ch.export("copy-task", "out", "onnx"), r"write export\(model, 'out', to='onnx'\)"),
        (lambda: load("copy-task").translate("1", beam="4"), r"write beam=4, without quotes"),
        (lambda: load("shakespeare-char").generate("1", max_new="4"), r"write max_new=4, without"),
        (
            lambda: ch.evaluate("copy-task", source=["1", "2"], reference=["1"]),
            r"line 2 of source has no partner",
        ),
    ],
)
def test_a_wrong_call_is_answered_with_the_right_one(call, message: str):
    with pytest.raises(ClearheadError, match=message):
        call()


@pytest.mark.parametrize(
    ("model", "method", "word", "option"),
    [
        ("shakespeare-char", "generate", "max_tokens", "max_new"),
        ("shakespeare-char", "generate", "max_new_tokens", "max_new"),
        ("shakespeare-char", "generate", "k", "top_k"),
        ("copy-task", "translate", "num_beams", "beam"),
        ("copy-task", "translations", "num_return_sequences", "n_best"),
    ],
)
def test_options_of_other_software_are_answered_with_our_own(
    model: str, method: str, word: str, option: str
):
    with pytest.raises(TypeError, match=f"no option '{word}'; did you mean '{option}'"):
        getattr(ch.load(model), method)("1", **{word: 5})


def test_keys_of_the_recipe_given_to_a_call_are_shown_in_their_tables():
    call: Any = ch.train
    with pytest.raises(
        TypeError, match=r"'steps', which is a key .*recipe\(…, train={'steps': 9, 'lr"
    ):
        call("copy-task", steps=9, lr=0.1)
    with pytest.raises(TypeError, match=r"train\(\) has no keyword 'foldr'; did you mean 'folder'"):
        call("copy-task", foldr="x")
    call = ch.training_plan
    with pytest.raises(TypeError, match=r"training_plan\(clearhead\.recipe\(…, train={'steps'"):
        call("copy-task", steps=9)


def test_python_calls_are_answered_with_the_method_or_the_keyword():
    with pytest.raises(InputError, match=r"use model\.translate"):
        ch.load("copy-task")("hello")
    with pytest.raises(
        ClearheadError, match=r"no key train\.learning_rate; did you mean 'train\.lr'"
    ):
        ch.recipe("copy-task", train={"learning_rate": 1})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ch.train(OwnText.texts(["a text"])), r"make one of it: clearhead\.recipe_for"),
        (lambda: ch.trace(torch.nn.Transformer(16, 2, 1, 1)), "not built as clearhead's models"),
        (lambda: ch.see(torch.nn.Linear(9, 9), "x"), "is not a path"),
        (lambda: ch.build_model("tiny-decoder")(torch.zeros(1, 3, 64)), r"tokens\.argmax\(-1\)"),
        (
            lambda: ch.load("copy-task").evaluate(source=["a"], reference="A dog runs."),
            r"give texts as a list: reference=\[",
        ),
    ],
)
def test_what_is_of_another_type_is_answered_with_what_was_meant(call, message: str):
    with pytest.raises(ClearheadError, match=message):
        call()


def test_models_of_two_kinds_are_not_compared():
    one, other = (ch.load(name).model for name in ("copy-task", "shakespeare-char"))
    for pair in ((one, other), (other, one)):
        with pytest.raises(Exception, match="so the two cannot be compared; name two models of"):
            ch.diff(*pair)
