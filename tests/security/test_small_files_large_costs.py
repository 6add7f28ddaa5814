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
from clearhead.errors import ClearheadError, DataError
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
            signal.alarm(seconds)
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
        {"d_model": 10**15 + 37, "n_heads": 2},
        {"d_head": 2, "n_heads": 10**15, "n_kv_heads": 7},
        {"d_model": 10**12 + 39, "n_heads": 7},
    ],
    ids=str,
)
def test_a_huge_number_that_does_not_divide_is_refused_at_once(folder: Path, sizes: dict[str, int]):
    change_model(folder, **sizes)
    answer = outcome(lambda: load_model(folder), seconds=5, megabytes=500)
    assert answer.startswith("refused: "), answer


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
    with pytest.raises(DataError, match="1000000000 times as long, and 64 is the limit"):
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
    with pytest.raises(DataError, match="makes its library fail"):
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
    with pytest.raises(DataError, match="can spell that token"):
        tokenizer_from_json(json.dumps(content))


def test_zstd_is_unpacked_within_bounds(tmp_path: Path):
    zstandard = pytest.importorskip("zstandard")
    from contextlib import ExitStack

    from clearhead.data.unpack import open_bytes

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
    sizes = {"vocab_size": 300, "d_model": 10**15 + 37, "n_heads": 2}
    answer = outcome(lambda: ModelConfig(family="decoder", **sizes), seconds=5, megabytes=500)
    assert "must divide" in answer
