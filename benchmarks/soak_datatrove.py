"""The pipeline of `python -m benchmarks.soak datatrove`: exact duplicates, filters that download
nothing, and clearhead's token files, on datatrove's local executor. A task that has ended is not
run again."""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup.exact_dedup import (
    ExactDedupConfig,
    ExactDedupFilter,
    ExactDedupSignature,
    ExactFindDedups,
)
from datatrove.pipeline.filters import GopherRepetitionFilter, LambdaFilter, RegexFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.hashing import HashConfig
from datatrove.utils.word_tokenizers import WordTokenizer

from clearhead.data.adopt import adopt
from clearhead.data.datatrove_step import TokenFiles
from clearhead.files import write_whole

COPY_EVERY, MARK_EVERY, REPEAT_EVERY = 50, 70, 90
SHORTEST = 20  # characters
WORKERS = 2


def plant(text: Path, planted: Path) -> dict[str, int]:
    """The text with copies of documents of earlier files, marked ones and repetitive ones; how many
    of each, and of all others."""
    planted.mkdir(exist_ok=True)
    counts_of = planted.with_suffix(".counts.json")
    if counts_of.is_file():
        return json.loads(counts_of.read_text(encoding="utf-8"))
    counts: dict[str, int] = {"originals": 0, "copies": 0, "marked": 0, "repetitive": 0}
    earlier: list[str] = []
    for path in sorted(text.glob("*.jsonl")):
        copies, earlier = earlier, []
        with path.open(encoding="utf-8") as lines, (planted / path.name).open("w") as out:

            def write(kind: str, document: str) -> None:
                counts[kind] += 1
                out.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")

            for number, line in enumerate(lines):
                document = json.loads(line)["text"]
                write("originals", document)
                if number % COPY_EVERY == 0:
                    earlier.append(document)
                    if copies:
                        write("copies", copies.pop())
                if number % MARK_EVERY == 0:
                    write("marked", f"planted marker {number} {path.name} {document}")
                if number % REPEAT_EVERY == 0:
                    line = f"planted repetition {number} of {path.name}\n"
                    write("repetitive", line * 20)
    write_whole(counts_of, json.dumps(counts))
    return counts


class WordsAtSpaces(WordTokenizer):
    """datatrove's own need further packages and their data."""

    def word_tokenize(self, text: str) -> list[str]:
        return text.split()

    def sent_tokenize(self, text: str) -> list[str]:
        return text.splitlines()

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in re.finditer(r"[^\n]+", text)]


def content(document: Document) -> str:
    return document.text


def long_enough(document: Document) -> bool:
    return len(document.text) >= SHORTEST


def run(folder: Path) -> None:
    planted, tasks = folder / "planted", len(list((folder / "planted").glob("*.jsonl")))
    hashing = HashConfig(hash_fc="sha1", precision=64)  # its first choice is one more package
    config = ExactDedupConfig(content_getter=content, hash_config=hashing)
    signatures, duplicates = folder / "signatures", folder / "duplicates"
    words: Any = WordsAtSpaces()  # which datatrove takes in the place of a language's name
    out = folder / "theirs"
    out.mkdir(exist_ok=True)
    shutil.copy(folder / "tokenizer.json", out / "tokenizer.json")
    stages: dict[str, tuple[Sequence[PipelineStep], int]] = {
        "signatures": (
            [JsonlReader(str(planted)), ExactDedupSignature(str(signatures), config)],
            tasks,
        ),
        "duplicates": ([ExactFindDedups(str(signatures), str(duplicates), config)], 1),
        "tokens": (
            [
                JsonlReader(str(planted)),
                ExactDedupFilter(str(duplicates), config),
                RegexFilter("planted marker"),
                LambdaFilter(long_enough),
                GopherRepetitionFilter(language=words),
                JsonlWriter(str(folder / "kept"), "${rank}.jsonl", compression=None),
                TokenFiles(out / "train", out / "tokenizer.json"),
            ],
            tasks,
        ),
    }
    for name, (pipeline, n) in stages.items():
        LocalPipelineExecutor(
            pipeline=list(pipeline),
            tasks=n,
            workers=WORKERS,
            logging_dir=str(folder / "logs" / name),
        ).run()
    adopt(out)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
