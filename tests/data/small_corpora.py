"""Text of many lengths and scripts, made up on the spot."""

from pathlib import Path
from typing import Any

from clearhead.config import DataConfig
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job

TEXT = "ein Hund läuft über die grüne Wiese und 红楼梦 the old man sees two small birds"
WORDS = TEXT.split()


def sentence(number: int, length: int) -> str:
    return " ".join(WORDS[(number * 7 + i * i) % len(WORDS)] for i in range(length))


def write_pairs(folder: Path, n: int, spans: str = "") -> tuple[str, str]:
    """Two files in step, of lengths that differ within a pair and between pairs. Spans stand at the
    front of the source and, in the other order, at the front of the target."""
    folder.mkdir(parents=True, exist_ok=True)
    turned = " ".join(reversed(spans.split(" ")))
    source = [spans + sentence(i, 1 + i * 13 % 11) for i in range(n)]
    target = [turned + sentence(i + 1, 1 + (i * 13 % 11 + i % 4)) for i in range(n)]
    (folder / "source.txt").write_text("\n".join(source) + "\n", encoding="utf-8")
    (folder / "target.txt").write_text("\n".join(target) + "\n", encoding="utf-8")
    return "source.txt", "target.txt"


def write_text(folder: Path, n: int) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [sentence(i, 1 + i * 29 % 17) for i in range(n)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return "text.txt"


def write_labelled(folder: Path, n: int) -> tuple[str, str]:
    """A file for each of two labels: texts with the good word in them, and with the bad one."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, word in enumerate(("sun", "rain")):
        lines = [f"{word} {sentence(2 * i + number, i * 5 % 9)} {word}" for i in range(n)]
        (folder / f"{word}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return "sun.txt", "rain.txt"


def labelled_config(train: tuple[str, ...], **changes: Any) -> DataConfig:
    settings: dict[str, Any] = {
        "task": "classification",
        "format": "labelled",
        "labels": ("fine", "wet"),
        "train": train,
        "vocab_size": 300,
        "special_tokens": ("<pad>", "<bos>", "<eos>", "<mask>"),
    }
    return DataConfig(**{**settings, **changes})


def make_corpus(folder: Path, config: DataConfig) -> Corpus:
    prepare(Job(config=config, root=folder, folder=folder / "prepared"))
    return open_corpus(folder / "prepared")
