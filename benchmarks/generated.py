"""Web-like text of any size, for measuring a data pipeline. A shard is a pure function of the seed
and its number.

Documents are runs of real neighbouring sentences (English, Chinese, poems, technical prose) with
invented names and other numbers, so that new words never stop coming. Good for speed, memory and
resuming; useless for what a model learns.
"""

import gzip
import json
import re
import signal
from collections.abc import Iterator
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import numpy as np

NAMES_ARE_MADE_OF = (
    "ba be bi bo bu da de di do du fa fe ga go ha he ka ke ki ko la le li lo lu ma me mi mo mu "
    "na ne ni no nu pa pe po ra re ri ro ru sa se si so su ta te ti to tu va ve vi wa za zi "
    "chen ling mont ston ford heim berg ville"
)
SYLLABLES = NAMES_ARE_MADE_OF.split()
SHARES = {"english": 0.55, "chinese": 0.20, "poems": 0.05, "docs_en": 0.10, "docs_zh": 0.10}
WITH_SPACES = ("english", "docs_en")
NAME = "\x01"  # stands where a name is to be invented
N_AT_ONCE = 256
MAX_SENTENCES = 200


def write_corpus(data: Path, folder: Path, *, n_shards: int, shard_bytes: int, seed: int) -> None:
    """Writes shards that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [n for n in range(n_shards) if not _path(folder, n).is_file()]
    # A pool ends its workers with SIGTERM, for which the caller may have a handler of its own.
    with Pool(2, signal.signal, (signal.SIGTERM, signal.SIG_DFL)) as pool:
        pool.map(partial(_write_shard, data, folder, shard_bytes, seed), missing, chunksize=1)


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.jsonl"


def _write_shard(data: Path, folder: Path, shard_bytes: int, seed: int, number: int) -> None:
    partial_path = _path(folder, number).with_suffix(".part")
    written = 0
    with partial_path.open("wb") as file:
        for text in _documents(_sentences(data), seed, number):
            record = json.dumps({"text": text}, ensure_ascii=False)
            written += file.write(record.encode() + b"\n")
            if written >= shard_bytes:
                break
    partial_path.rename(_path(folder, number))


def _documents(sentences: dict[str, list[str]], seed: int, shard: int) -> Iterator[str]:
    random = np.random.Generator(np.random.PCG64([seed, shard]))
    while True:
        kinds = random.choice(list(SHARES), size=N_AT_ONCE, p=list(SHARES.values()))
        lengths = np.exp(random.normal(2.0, 0.9, N_AT_ONCE)).astype(int) + 1
        for kind, length in zip(kinds.tolist(), np.minimum(lengths, MAX_SENTENCES).tolist()):
            pool, chosen = sentences[kind], []
            while len(chosen) < length:
                start = int(random.integers(len(pool)))
                chosen += pool[start : start + int(random.integers(1, 5))]
            text = (" " if kind in WITH_SPACES else "").join(chosen[:length])
            yield _with_new_names_and_numbers(text, random)


def _with_new_names_and_numbers(text: str, random: np.random.Generator) -> str:
    head, *rest = text.split(NAME)
    rolls = iter(random.integers(0, 1 << 62, size=len(rest) + 64).tolist())
    text = head + "".join(_name(next(rolls)) + part for part in rest)
    return re.sub(r"\d{2,4}", lambda _: str(next(rolls, 7) % 9000 + 10), text, count=32)


def _name(number: int) -> str:
    n_syllables, number = number % 3 + 2, number // 3
    word = ""
    for _ in range(n_syllables):
        number, place = divmod(number, len(SYLLABLES))
        word += SYLLABLES[place]
    return word.capitalize()


def _sentences(data: Path) -> dict[str, list[str]]:
    english: list[str] = []
    for line in _lines(data / "wikitext-2/train.txt.gz"):
        if len(line) > 80 and not line.strip().startswith("="):
            for mark in "-,.":
                line = line.replace(f" @{mark}@ ", mark)
            parts = re.split(r"(?<= [.?!]) ", line.strip().replace("<unk>", NAME))
            english += [part.strip() for part in parts if 20 < len(part) < 400]
    chinese: list[str] = []
    for line in _lines(data / "hongloumeng/input.txt.gz"):
        parts = re.findall(r"[^。！？]+[。！？]”?", line.strip())
        chinese += [part for part in parts if 8 < len(part) < 200]
    poems = [line.split("\t")[2] for line in _lines(data / "chinese_poetry/songci.train.tsv.gz")]
    docs = [line.split("\t") for line in _lines(data / "python_docs_zh_cn/train.tsv.gz")]
    return {
        "english": english,
        "chinese": chinese,
        "poems": poems,
        "docs_en": [fields[0] for fields in docs],
        "docs_zh": [fields[1] for fields in docs],
    }


def _lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line for line in file.read().split("\n") if line]
