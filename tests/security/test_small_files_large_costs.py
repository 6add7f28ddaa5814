"""What is read costs time and memory in proportion to what is on disk, or to a named limit."""

import json
import os
import resource
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearhead.config import ModelConfig
from clearhead.config.checks import nearest_divisor
from clearhead.data.manifest import read_manifest, read_note
from clearhead.errors import ClearheadError, DataError, FolderError
from clearhead.files import open_plain
from clearhead.interop.model_folder import load_model, save_model
from clearhead.models import build_model
from clearhead.text.tokenizer import tokenizer_from_json
from clearhead.text.train import train_bpe

MEGABYTE = 2**20


def outcome(attack: Callable[[], object], *, seconds: int, megabytes: int) -> str:
    """What the attack ends with, in a process of its own that may not use more than that: what it
    returned, our error, or the name of whatever else came out of it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer = "killed"
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            limit = used + megabytes * MEGABYTE
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            signal.setitimer(signal.ITIMER_PROF, seconds)  # of the processor; others may use it
            signal.alarm(10 * seconds)
            answer = f"returned {attack()!r}"
        except ClearheadError as error:
            answer = f"refused: {error}"
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, answer.encode()[:2000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return answer or f"ended by signal {os.WTERMSIG(status)}"


@pytest.fixture(scope="module")
def tokenizer_json() -> dict[str, Any]:
    texts = ["the quick brown fox jumps over the lazy dog", "hello world 123"] * 20
    return json.loads(train_bpe(texts, 300).to_json())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sizes = {"vocab_size": 300, "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32}
    save_model(build_model(ModelConfig(family="decoder", **sizes)), tmp_path / "model")
    return tmp_path / "model"


def change_model(folder: Path, **values: Any) -> None:
    content = json.loads((folder / "config.json").read_text())
    content["model"].update(values)
    (folder / "config.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "sizes",
    [
        {"d_model": 2**28 - 57, "n_heads": 2},
        {"d_head": 2, "n_heads": 10**15, "n_kv_heads": 7},
        {"d_model": 10**12 + 39, "n_heads": 7},
    ],
    ids=str,
)
def test_a_huge_number_that_does_not_divide_is_refused_at_once(folder: Path, sizes: dict[str, int]):
    change_model(folder, **sizes)
    answer = outcome(lambda: load_model(folder), seconds=5, megabytes=500)
    assert answer.startswith("refused: "), answer


@pytest.mark.parametrize("length", [3_000_000, 30_000_000])
@pytest.mark.parametrize("place", ["value", "key", "part", "format"])
def test_a_long_value_of_a_config_is_refused_at_once_and_not_quoted(
    folder: Path, length: int, place: str
):
    content, long = json.loads((folder / "config.json").read_text()), "x" * length
    match place:
        case "value":
            content["model"]["family"] = long
        case "key":
            content["model"][long] = 1
        case "part":
            content[long] = 1
        case _:
            content["format"] = long
    (folder / "config.json").write_text(json.dumps(content))
    started = time.process_time()
    with pytest.raises(ClearheadError) as refused:
        load_model(folder)
    assert len(str(refused.value)) < 5000
    assert time.process_time() - started < 3
    assert ("more than 4,194,304; is it damaged?" in str(refused.value)) == (length > 4e6)


def test_a_long_value_of_a_hugging_face_config_is_not_quoted(tmp_path: Path):
    from clearhead.interop.huggingface.importing import import_model

    for content in ({"model_type": "x" * 3_000_000}, {"model_type": "llama", "y" * 3_000_000: 1}):
        content["architectures"] = ["LlamaForCausalLM"]
        (tmp_path / "config.json").write_text(json.dumps(content))
        started = time.process_time()
        with pytest.raises(ClearheadError) as refused:
            import_model(tmp_path, tmp_path / "ours")
        assert len(str(refused.value)) < 5000
        assert time.process_time() - started < 3


@pytest.mark.parametrize(
    ("of", "to", "nearest"),
    [(64, 5, 4), (64, 7, 8), (12, 5, 4), (12, 100, 12), (7, 4, 1), (2**61 - 1, 2**40, 1)],
)
def test_the_nearest_divisor_is_found_or_given_up(of: int, to: int, nearest: int):
    assert nearest_divisor(of, to) == nearest


def test_empty_tensors_are_not_counted_as_layers(folder: Path):
    names = {f"{i:x}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(9000)}
    header = json.dumps(names).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    change_model(folder, n_layers=9000, d_model=1, n_heads=1, d_ff=1, positions="none")
    answer = outcome(lambda: load_model(folder), seconds=5, megabytes=500)
    assert "is more layers than 0 tensors can be" in answer


@pytest.mark.parametrize("index", [2**32 - 1, 200_000_000])
def test_a_large_token_id_makes_no_large_table(tokenizer_json: dict[str, Any], index: int):
    content = json.loads(json.dumps(tokenizer_json))
    content["model"]["vocab"]["Z"] = index
    tokenizer = tokenizer_from_json(json.dumps(content))
    answer = outcome(
        lambda: tokenizer.decode(tokenizer.encode("hello Z")), seconds=5, megabytes=500
    )
    assert answer == "returned 'hello Z'"


def test_replacements_that_multiply_a_text_are_refused(tokenizer_json: dict[str, Any]):
    bomb = {"type": "Replace", "pattern": {"String": "l"}, "content": "l" * 1000}
    content = tokenizer_json | {"normalizer": {"type": "Sequence", "normalizers": [bomb] * 3}}
    with pytest.raises(DataError, match="2,000,000,000 times as long, and 128 is the limit"):
        tokenizer_from_json(json.dumps(content))


@pytest.mark.parametrize(
    "damage",
    [
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    ],
    ids=lambda damage: next(iter(damage)),
)
def test_a_tokenizer_that_makes_its_library_panic_is_refused(
    tokenizer_json: dict[str, Any], damage: dict[str, Any]
):
    with pytest.raises(DataError, match="crashes its library"):
        tokenizer_from_json(json.dumps(tokenizer_json | damage)).encode("abc")


def test_a_text_cannot_spell_a_control_token_that_is_not_marked_special(
    tokenizer_json: dict[str, Any],
):
    content = json.loads(json.dumps(tokenizer_json))
    for token in content["added_tokens"]:
        token["special"] = False
    tokenizer = tokenizer_from_json(json.dumps(content))
    ids = tokenizer.encode("a<eos>b<pad>")
    assert tokenizer.control_ids.isdisjoint(ids)
    assert tokenizer.decode(ids) == "a<eos>b<pad>"


def test_a_tokenizer_whose_merges_spell_a_control_token_is_refused(tokenizer_json: dict[str, Any]):
    content = json.loads(json.dumps(tokenizer_json))
    content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] != "<eos>"]
    content["pre_tokenizer"]["use_regex"] = False  # which would cut the text into "<", "eos", ">"
    merges = [("<", "e"), ("<e", "o"), ("<eo", "s"), ("<eos", ">")]
    for number, (left, right) in enumerate(merges):
        content["model"]["merges"].insert(number, [left, right])
        content["model"]["vocab"].setdefault(left + right, 300 + number)
    tokenizer = tokenizer_from_json(json.dumps(content))
    assert tokenizer.encode("a")
    for spelt in (tokenizer.check_control_tokens, lambda: tokenizer.encode("a<eos>b")):
        with pytest.raises(DataError, match="can spell that token"):
            spelt()


def test_zstd_is_unpacked_within_bounds(tmp_path: Path):
    zstandard = pytest.importorskip("zstandard")
    from contextlib import ExitStack

    from clearhead.intake.unpack import open_bytes

    path = tmp_path / "bomb.zst"
    compressor = zstandard.ZstdCompressor().compressobj()
    zeros = bytes(16 * MEGABYTE)
    packed = b"".join(compressor.compress(zeros) for _ in range(16)) + compressor.flush()
    path.write_bytes(packed)

    def read() -> int:
        with ExitStack() as stack:
            file = open_bytes(path, stack)
            return sum(len(piece) for piece in iter(lambda: file.data.read(MEGABYTE), b""))

    assert outcome(read, seconds=20, megabytes=150) == f"returned {2**28}"


def test_a_long_line_is_read_in_linear_time(tmp_path: Path):
    from clearhead.cli.lines import _unbuffered_lines

    def seconds(megabytes: int) -> float:
        path = tmp_path / f"{megabytes}"
        path.write_bytes(b"a" * (megabytes * MEGABYTE) + b"\nlast")
        with path.open("rb") as file:
            started = time.process_time()
            assert [len(line) for line in _unbuffered_lines(file)] == [megabytes * MEGABYTE + 1, 4]
            return time.process_time() - started

    assert seconds(64) < 40 * max(seconds(4), 0.005)  # quadratic: 256 times


def test_a_recipe_with_a_huge_number_is_refused_at_once():
    sizes = {"vocab_size": 300, "d_model": 2**28 - 57, "n_heads": 2}
    answer = outcome(lambda: ModelConfig(family="decoder", **sizes), seconds=5, megabytes=500)
    assert "must divide" in answer


def parquet_documents(path: Path, **settings: Any) -> tuple[int, dict[str, int]]:
    """How many documents a Parquet file gives, and what was left out."""
    from clearhead.config.data import INVALID_INPUT, DataConfig
    from clearhead.intake.sources import Cursor, Reader, find_inputs

    config = DataConfig(
        train=(str(path),),
        format="parquet",
        columns=("text",),
        vocab_size=300,
        skip=INVALID_INPUT,
        **settings,
    )
    reader = Reader(find_inputs(config, "train"), config, "train")
    n = sum(1 for _ in reader.documents(Cursor(), {}))
    return n, dict(reader.sieve.counts)


def write_parquet(path: Path, texts: list[Any], **how: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    kind = pa.binary() if texts and isinstance(texts[0], bytes) else pa.string()
    parquet.write_table(pa.table({"text": pa.array(texts, kind)}), path, **how)


def peak_of_arrow() -> int:
    import pyarrow

    return pyarrow.default_memory_pool().max_memory()


def test_a_long_value_in_every_row_of_parquet_is_read_within_bounds(tmp_path: Path):
    path = tmp_path / "bomb.parquet"
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    one = pa.DictionaryArray.from_arrays(pa.array([0] * 150, pa.int32()), ["a" * (8 * MEGABYTE)])
    how = {"compression": "zstd", "dictionary_pagesize_limit": 2**30, "store_schema": False}
    parquet.write_table(pa.table({"text": one}), path, **how)
    del one
    assert path.stat().st_size < 20_000
    before = peak_of_arrow()
    assert parquet_documents(path) == (150, {})
    assert peak_of_arrow() - before < 600 * MEGABYTE  # 150 times 8 MB, if all were read at once


def test_a_page_of_parquet_that_unpacks_to_too_much_is_refused(tmp_path: Path):
    path = tmp_path / "bomb.parquet"
    zeros = "\0" * (200 * MEGABYTE)
    write_parquet(path, [zeros], compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 100_000
    with pytest.raises(DataError, match="more than 100 times as many"):
        parquet_documents(path)


def test_a_file_with_more_rows_than_text_can_have_is_refused(tmp_path: Path, monkeypatch):
    path = tmp_path / "bomb.parquet"
    write_parquet(path, [None] * 200_000 + ["x"], compression="zstd")
    assert parquet_documents(path, held_out=0.5)[0] == 0
    monkeypatch.setattr("clearhead.intake.parquet.ROWS_OF_A_BYTE", 100)
    with pytest.raises(DataError, match="more than 100 for each byte"):
        parquet_documents(path)


def test_damaged_parquet_is_refused_with_its_name(tmp_path: Path):
    path = tmp_path / "a.parquet"
    texts = [f"row {n} " * 20 for n in range(3000)]
    write_parquet(path, texts, compression="snappy")
    whole = bytearray(path.read_bytes())
    for place in range(4, len(whole) // 2):
        whole[place] ^= 0x55
    path.write_bytes(whole)
    with pytest.raises(DataError, match=r"a\.parquet cannot be read completely"):
        parquet_documents(path)
    path.write_bytes(whole[:200])
    with pytest.raises(DataError, match=r"a\.parquet cannot be read completely"):
        parquet_documents(path)


def test_a_row_of_parquet_that_is_not_utf8_is_counted_and_the_others_are_read(tmp_path: Path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = pa.array([b"one", b"\xff\xfe", b"three"], pa.binary()).view(pa.string())
    parquet.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    assert parquet_documents(tmp_path / "a.parquet") == (2, {"invalid-utf8": 1})


def test_a_column_of_parquet_that_is_no_text_is_refused_by_its_name(tmp_path: Path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"text": pa.array([["a"]]), "b": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"has no column 'text' that holds .*; it has 'b'"):
        parquet_documents(tmp_path / "a.parquet")


@pytest.mark.parametrize("kind", ["text", "csv", "tmx", "parquet"])
@pytest.mark.slow
def test_what_is_read_as_a_whole_unpacks_within_bounds(kind: str, tmp_path: Path):
    """300 MB of one record in 300 KB of gzip."""
    import gzip

    from clearhead.config.data import INVALID_INPUT, DataConfig
    from clearhead.intake.sources import Cursor, Reader, find_inputs

    start = {"tmx": b"<tmx><body><tu><tuv xml:lang='en'><seg>", "csv": b'"'}.get(kind, b"")
    suffix = {"text": "txt"}.get(kind, kind)
    path = tmp_path / f"bomb.{suffix}.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(start)
        for _ in range(300):
            file.write((b"a,\n" if kind == "csv" else b"aaa") * (MEGABYTE // 3))
    columns = {"csv": (1,), "tmx": ("en",), "parquet": ("text",)}.get(kind, ())
    how = {"document": "file"} if kind == "text" else {"columns": columns, "skip": INVALID_INPUT}
    config = DataConfig(train=(str(path),), format=kind, max_bytes=2**40, vocab_size=300, **how)

    def read() -> int:
        reader = Reader(find_inputs(config, "train"), config, "train")
        return sum(1 for _ in reader.documents(Cursor(), {}))

    answer = outcome(read, seconds=30, megabytes=700)
    assert "unpacks to more than" in answer or "a record of more than" in answer, answer


@pytest.mark.parametrize("start", ['<tu x="', "<!-- ", "<a", "<?pi "])
def test_a_long_tag_of_a_translation_memory_takes_no_quadratic_time(start: str, tmp_path: Path):
    """16 MB took minutes."""
    from clearhead.intake.proposal import propose

    path = tmp_path / "a.tmx"
    path.write_bytes(b'<?xml version="1.0"?><tmx><body>' + start.encode() + b"a" * (16 * MEGABYTE))
    answer = outcome(lambda: propose(path), seconds=5, megabytes=500)
    assert "a.tmx has a tag or a comment of more than 1,048,576 bytes" in answer


def test_a_long_text_of_a_translation_memory_is_no_long_tag(tmp_path: Path):
    from contextlib import ExitStack

    from clearhead.intake.tables import read_units
    from clearhead.intake.unpack import open_bytes

    path, text = tmp_path / "a.tmx", "word " * (3 * MEGABYTE // 5)
    path.write_text(f"<tmx><body><tu><tuv xml:lang='en'><seg>{text}</seg></tuv></tu></body></tmx>")
    with ExitStack() as stack:
        assert [*read_units(open_bytes(path, stack))] == [{"en": text.strip()}]


def test_a_packed_line_for_translate_has_a_limit(tmp_path: Path):
    import gzip
    from argparse import Namespace

    from clearhead.cli.lines import read_lines

    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(300):
            file.write(bytes(MEGABYTE))
    given = Namespace(input=path)
    answer = outcome(lambda: list(read_lines(given)), seconds=30, megabytes=700)
    assert "a line has more than 67,108,864 bytes" in answer


def test_a_manifest_without_end_is_not_read(tmp_path: Path):
    for name in ("manifest.json", ".verified.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(2**40)
    with pytest.raises(DataError, match="more than any manifest has"):
        read_manifest(tmp_path)
    assert read_note(tmp_path / ".verified.json") == {}


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(FolderError, match="is a folder where a file should be"):
        open_plain(tmp_path / "metrics.jsonl", os.O_WRONLY)
