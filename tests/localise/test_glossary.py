"""Terms of a glossary: found in texts, learnt in training, and in every translation."""

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import clearhead as ch
from clearhead.cli import main
from clearhead.config import BeamConfig, ModelConfig, TranslateConfig
from clearhead.config.data import DataConfig
from clearhead.data.encode import TaughtTerms, encode_sides
from clearhead.decoding.codec import Codec
from clearhead.decoding.constraints import Constraint
from clearhead.decoding.keeping import Keeping, can_keep, keeps_spans
from clearhead.decoding.terms import term_tokens
from clearhead.decoding.text import OwnEngine, translate_texts
from clearhead.errors import ConfigError, DataError
from clearhead.interop.model_folder import TokenIds
from clearhead.localise.glossary import (
    Glossary,
    Term,
    as_glossary,
    is_used,
    read_glossary,
    terms_of_both,
)
from clearhead.localise.masking import mask
from clearhead.models import Seq2Seq
from clearhead.models.assemble import build_model
from clearhead.text.pieces import encode_pieces
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.train import train_bpe
from tests.localise.catalogues import PO, check_with_msgfmt
from tests.localise.test_keeping import (
    Decode,
    ForgetfulEngine,
    by_beam,
    by_greedy,
    by_sampling,
    random_texts,
)

TERMS = {"file": "fichier", "cat": "chat noir", "open": "打开", "x < y": "wrong", "the": "le"}
GLOSSARY = Glossary({term: target for term, target in TERMS.items() if "<" not in term})
N_RESERVED = 12
MAX_LENGTH = 64


def new_tokenizer(**settings: object) -> Tokenizer:
    config = DataConfig(task="pairs", format="tsv", columns=(1, 2), train=("x",), vocab_size=340,
                        **settings)  # fmt: skip # pyright: ignore[reportArgumentType]
    text = ["open the file, a cat; %s {name} <b> </b> &amp; < > ` $", "ouvrir le fichier 打开"]
    return train_bpe(text, 340, special_tokens=config.control_tokens)


@pytest.fixture(scope="module", params=["plain", "spans", "terms", "both"])
def codec(request: pytest.FixtureRequest) -> Codec:
    """Of a model that has learnt neither, one of the two, or both."""
    settings: dict[str, object] = {}
    if request.param in ("spans", "both"):
        settings["placeholders"] = N_RESERVED
    if request.param in ("terms", "both"):
        settings["glossary"] = "terms.csv"
    tokenizer = new_tokenizer(**settings)
    return Codec(source=tokenizer, target=tokenizer, ids=TokenIds())


@pytest.fixture(scope="module")
def model(codec: Codec) -> Seq2Seq:
    config = ModelConfig(
        family="encoder-decoder", vocab_size=codec.target.vocab_size, max_length=MAX_LENGTH,
        d_model=8, n_heads=2, d_ff=12, n_layers=1,
    )  # fmt: skip
    model = build_model(config)
    assert isinstance(model, Seq2Seq)
    return model


def random_terms(chance: random.Random) -> dict[str, str]:
    words = ["fichier", "chat noir", "打开", "Ünï", "a", "a a", "a b", "R&D", "x_y-z"]
    sources = ["file", "cat", "open", "the", "a cat", "open the file"]
    chance.shuffle(sources)
    n_terms = chance.randint(1, 4)
    return dict(zip(sources[:n_terms], chance.choices(words, k=n_terms)))


@pytest.mark.parametrize("width", [1, 3])
def test_an_untrained_model_uses_every_term(model: Seq2Seq, codec: Codec, width: int):
    chance = random.Random(11)
    config = TranslateConfig(beam=BeamConfig(width=width, n_best=width), max_new=40)
    for text in random_texts(5, 5):
        terms = random_terms(chance)
        wanted = Glossary(terms).terms_in(mask(text).pieces if codec.keeps_spans else [text])
        (answer,) = translate_texts(
            OwnEngine(model), codec, [text], config, glossary=Glossary(terms)
        )
        assert answer.outputs
        for output in answer.outputs:
            assert [use.term for use in output.terms] == [*wanted]
            for term, used in output.terms:
                assert term.target.casefold() in output.text.casefold(), (text, output.text)
                assert used == is_used(term.target, output.text)
            if codec.keeps_spans:
                assert mask(text).is_kept_by(output.text)


@pytest.mark.parametrize("decode", [by_greedy, by_beam, by_sampling])
def test_the_constraint_alone_forces_runs_and_spans(model: Seq2Seq, codec: Codec, decode: Decode):
    chance, space = random.Random(3), 30
    texts = [mask(text) for text in random_texts(16, 6)]
    rows: list[list[int]] = codec.encode_sources(
        ["".join(str(piece) for piece in text.pieces) for text in texts]
    )
    constraints: list[Constraint] = []
    for text in texts:
        masked = text if codec.keeps_spans else None
        runs = [
            term_tokens(Term("", target), codec.target) for target in random_terms(chance).values()
        ]
        while not can_keep(masked, codec.target, space, runs):
            runs.pop()
        constraints.append(Keeping(masked, codec.target, space, runs))
    found = decode(model, rows, codec.decode_config(space), constraints)
    for text, keeping, outputs in zip(texts, constraints, found):
        assert isinstance(keeping, Keeping) and outputs
        for output in outputs:
            assert all(holds(output.tokens, run) for run in keeping.runs)
            assert not codec.keeps_spans or keeps_spans(text, codec.target, output.tokens)
            assert output.tokens.count(codec.target.eos_id) <= 1


def holds(tokens: Sequence[int], run: Sequence[int]) -> bool:
    starts = range(len(tokens) - len(run) + 1)
    return any([*tokens[start : start + len(run)]] == [*run] for start in starts)


def test_runs_fit_into_exactly_the_space_that_they_need(codec: Codec):
    ids = codec.target.encode("abcd")
    a, b, c, d = ids
    for runs in ([[a, b, c], [a, b], [b, c, d]], [[a, a], [a, a, b]], [[a], [b], [c, c, c]]):
        space = sum(map(len, runs)) + 1
        assert not can_keep(None, codec.target, space - 1, runs)
        for seed in range(40):
            chance = random.Random(seed)
            keeping = Keeping(None, codec.target, space + seed % 3, runs)
            new: list[int] = []
            while len(new) < keeping.max_new:
                admitted = keeping(new)
                free = not isinstance(admitted, set | list)
                token = chance.choice([*ids] if free else sorted(admitted))
                if token == codec.target.eos_id:
                    break
                new.append(token)
            assert all(holds(new, run) for run in runs), (runs, new)


def test_a_term_that_has_no_space_is_left_out(model: Seq2Seq, codec: Codec):
    config = TranslateConfig(beam=BeamConfig(width=1), max_new=6)
    terms = {"cat": "x" * 100, "file": "R"}
    (answer,) = translate_texts(
        OwnEngine(model), codec, ["a cat file"], config, glossary=Glossary(terms)
    )
    (output,) = answer.outputs
    assert [use.is_used for use in output.terms] in ([False, True], [False, False])
    assert "r" in output.text.casefold()


def test_another_engine_is_looked_after(model: Seq2Seq, codec: Codec):
    forgetful = ForgetfulEngine(model)
    config = TranslateConfig(beam=BeamConfig(width=1), max_new=30)
    texts = ["open the file", "", "nothing"]
    answers = translate_texts(forgetful, codec, texts, config, glossary=GLOSSARY)
    for target in ("打开", "le", "fichier"):
        assert target in answers[0].texts[0]
    assert answers[1].outputs == [] and answers[2].outputs[0].terms == ()


def test_long_terms_come_first_and_words_are_whole():
    glossary = Glossary({"file": "F", "File system": "FS", "猫": "cat", "open": "o"})
    assert glossary.with_terms(["a file  System, FILE; files", 0, "profile open"]) == (
        "a", Term(" file  System", " FS"), ",", Term(" FILE", " F"), "; files", 0, "profile",
        Term(" open", " o"),
    )  # fmt: skip
    assert glossary.with_terms(["黑猫在家"]) == ("黑", Term("猫", " cat"), "在家")
    assert glossary.terms_in(["file FILE"]) == (Term("file", "F"),)
    assert Glossary({"क": "k"}).terms_in(["कि"]) == ()


def test_a_term_is_used_with_an_ending_or_without():
    assert is_used("Datei", "Alle Dateien.") and is_used("dat", "Dat")
    assert not is_used("cat", "category") and not is_used("cat", "a copycat")
    assert is_used("文件", "打开文件夹") and is_used(
        "système de fichiers", "le Système  de fichiers"
    )
    assert not is_used("a b", "a c b")


def test_both_sides_have_what_is_taught():
    pieces = terms_of_both(GLOSSARY, ["open the file"], "ouvrir le dossier")
    assert pieces == ("open", Term(" the", " le"), " file")
    tokenizer = new_tokenizer(glossary="terms.csv", placeholders=4)
    start, between, end = tokenizer.term_ids
    assert not {start, between, end} & {*tokenizer.encode("<term-start><term-target><term-end>")}
    texts = (["open the file %s"] * 2 + ["a"], ["打开 le fichier %s"] * 2 + ["b"])
    (source, target) = encode_sides([tokenizer] * 2, texts, TaughtTerms(GLOSSARY, 1.0))
    ids = source.tokens[: source.lengths[0]].tolist()
    assert [ids.count(index) for index in (start, between, end)] == [3, 3, 3]
    assert not {start, between, end} & {*target.tokens.tolist()}
    expected = encode_pieces(tokenizer, [GLOSSARY.with_terms(["open the file ", 0])])[0]
    assert ids[:-1] == expected
    plain = encode_sides([tokenizer] * 2, texts, TaughtTerms(GLOSSARY, 1e-9))
    assert start not in plain[0].tokens.tolist()


def test_a_share_of_the_pairs_says_its_terms():
    tokenizer = new_tokenizer(glossary="terms.csv")
    sources = [f"the file number {n}" for n in range(400)]
    targets = [f"le fichier {n}" for n in range(400)]
    source, _ = encode_sides([tokenizer] * 2, (sources, targets), TaughtTerms(GLOSSARY, 0.3))
    again, _ = encode_sides([tokenizer] * 2, (sources, targets), TaughtTerms(GLOSSARY, 0.3))
    assert source.tokens.tolist() == again.tokens.tolist()
    assert 80 < source.tokens.tolist().count(tokenizer.term_ids[0]) / 2 < 160


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("file,fichier\nfile,dossier\n", "row 2: 'file' has another translation in row 1"),
        ("file\n", "row 1 has no comma; write a term and its translation"),
        ("file\tfichier\n", "row 1 is separated by a tab; use a comma"),
        ("file;fichier\n", "row 1 is separated by a semicolon; use a comma"),
        ("a,b,c\n", "3 columns"),
        ("source,target\n\n", "has no terms"),
        ("file, \n", "the translation is empty"),
        ("a{name},b\n", "the term has a placeholder, a tag or an address; leave it out"),
        ("a" * 201 + ",b\n", "has 201 characters; write at most 200"),
        ('"a,b\n', "is not CSV"),
        ("a\0b,c\n", "control characters"),
    ],
)
def test_a_glossary_that_cannot_be_read_says_why(tmp_path: Path, content: str, message: str):
    path = tmp_path / "terms.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as refused:
        read_glossary(path)
    assert message in str(refused.value)


def test_a_glossary_is_read_with_a_header_or_without(tmp_path: Path):
    path = tmp_path / "terms.csv"
    path.write_bytes(b"")
    with pytest.raises(DataError, match="no terms"):
        read_glossary(path)
    path.write_bytes('\ufeffSource, Target\nfile,fichier\n"a, b",c d\nfile,fichier\n'.encode())
    assert {**read_glossary(path)} == {"file": "fichier", "a, b": "c d"}
    path.write_bytes(b"\xff,a\n")
    with pytest.raises(DataError, match="byte 1 is not UTF-8"):
        read_glossary(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_glossary(tmp_path / "other.csv")


def test_a_dictionary_is_checked():
    assert as_glossary(None) is None and as_glossary({}) is None
    glossary = as_glossary({"a": "b"})
    assert glossary is not None and as_glossary(glossary) is glossary
    with pytest.raises(ConfigError, match="is not a term with its translation; give two strings"):
        as_glossary({"a": 3})  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="has a translation that is empty; write it"):
        as_glossary({"a": ""})


def test_settings_of_a_glossary_are_checked(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"glossary='a\.csv' is for task='pairs'"):
        DataConfig(train=(str(tmp_path),), vocab_size=300, glossary="a.csv")
    with pytest.raises(ConfigError, match="glossary_share=0 must be above 0"):
        DataConfig(train=(str(tmp_path),), vocab_size=300, glossary_share=0)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> ch.TrainedRun:
    """A run that has read terms in its sources, for a few steps."""
    place = tmp_path_factory.mktemp("glossary")
    (place / "terms.csv").write_text("cat,chat\nfile,fichier\n", encoding="utf-8")
    rows = [f"a cat in file {n}\tun chat dans le fichier {n}" for n in range(80)]
    (place / "pairs.tsv").write_text("\n".join(rows), encoding="utf-8")
    recipe = ch.recipe(
        name="terms",
        data=ch.DataConfig(
            task="pairs", format="tsv", columns=(1, 2), train=(str(place / "pairs.tsv"),),
            vocab_size=330, held_out=0.1, placeholders=8, glossary=str(place / "terms.csv"),
        ),
        model=ch.ModelConfig(
            family="encoder-decoder", d_model=16, n_layers=1, n_heads=2, d_ff=32, max_length=96
        ),
        batches=ch.BatchConfig(batch_tokens=512),
        train=ch.TrainConfig(steps=3, warmup_steps=1, validate_every=3, save_every=3),
    )  # fmt: skip
    return ch.train(recipe, folder=place / "runs" / "terms", prepared=place / "prepared")


def test_a_run_translates_with_terms(taught: ch.TrainedRun, tmp_path: Path, capsys):
    assert taught.opened.codec.reads_terms
    (manifest,) = taught.folder.parent.parent.glob("prepared/manifest.json")
    assert "terms.csv" in manifest.read_text(encoding="utf-8")
    text = "a cat, {name}"
    assert "Katze" in taught.translate(text, glossary={"cat": "Katze"}, beam=1, max_new=20)
    terms = tmp_path / "terms.csv"
    terms.write_text("cat,Katze\n", encoding="utf-8")
    output = taught.translations(text, glossary=terms, beam=2, max_new=20)[0]
    assert output.terms[0].term == Term("cat", "Katze") and "{name}" in output.text
    lines = tmp_path / "lines.txt"
    lines.write_text(f"{text}\nnothing\n", encoding="utf-8")
    command = ["translate", str(taught.folder), "--input", str(lines), "--glossary", str(terms)]
    assert main([*command, "--beam", "1", "--max-new", "20"]) == 0
    printed = capsys.readouterr()
    assert "katze" in printed.out.lower()
    assert "glossary: of 1 terms in the sources, " in printed.err
    assert main([*command, "--format", "jsonl", "--max-new", "20"]) == 0
    assert '"terms": [{"source": "cat", "target": "Katze"' in capsys.readouterr().out


def test_a_catalogue_is_filled_with_terms(taught: ch.TrainedRun, tmp_path: Path, capsys):
    pytest.importorskip("translate")
    path, terms = tmp_path / "zh_CN.po", tmp_path / "terms.csv"
    path.write_text(PO, encoding="utf-8")
    terms.write_text("cats,猫咪\ndoor,大门\n", encoding="utf-8")
    command = ["translate", str(taught.folder), "--catalogue", str(path), "--max-new", "40"]
    assert main([*command, "--beam", "1", "--glossary", str(terms)]) == 0
    check_with_msgfmt(path)
    assert "glossary: of 3 terms in the sources, " in capsys.readouterr().out
    text = path.read_text(encoding="utf-8")
    assert "大门" in text and text.count("猫咪") == 2


def test_a_pipe_or_a_folder_is_no_glossary(tmp_path: Path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(DataError, match="is not a file; give a CSV file of terms"):
            read_glossary(path)
