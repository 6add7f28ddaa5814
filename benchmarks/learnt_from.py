"""What it takes to say what a translation was learnt from (`translate --details`): seconds to the
first answer and for each further one, the memory that is held, and the bytes that are stored for
it, beside what `prepare` takes. The answers are compared with `grep -Fc` and with a search through
all pairs.

    python -m benchmarks.learnt_from               # Multi30k, 29,000 pairs, a minute or two
    python -m benchmarks.learnt_from --times 30    # as many numbered copies of it

Needs CLEARHEAD_DATA. `--lines 500` tries the script on a few pairs, and stores no result.
"""

import argparse
import json
import math
import random
import shutil
import subprocess
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from sys import getsizeof
from typing import Any

import numpy as np

from benchmarks.own_text import unpacked
from clearhead.config import DataConfig, load_recipe
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.learnt_from import TrainingText, ngrams_of
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job
from tools.result import write_result

RECIPE = "multi30k-de-en"
FILES = ("train.de", "train.en")
N_ASKED = 100
N_COUNTED = 200
N_COMPARED = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1, help="copies of the training text")
    parser.add_argument("--lines", type=int, help="pairs to take, instead of all")
    parser.add_argument("--folder", type=Path, default=Path("runs/benchmark-learnt-from"))
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    config = write_text(options.folder, options.times, options.lines)
    started = time.perf_counter()
    prepare(Job(config=config, root=options.folder, folder=options.folder / "prepared"))
    measured = {
        "times": options.times,
        "text_bytes": sum((options.folder / name).stat().st_size for name in FILES),
        "prepare_seconds": round(time.perf_counter() - started, 2),
        **asked(options.folder),
    }
    print(json.dumps(measured, indent=2))
    if options.lines is None:
        print(write_result(f"learnt_from_{options.times}", measured))


def write_text(folder: Path, times: int, lines: int | None) -> DataConfig:
    """The pairs of Multi30k; copies end in a number, so that no two lines are equal."""
    for name in FILES:
        own = unpacked(f"multi30k/{name}.gz")[:lines]
        with (folder / name).open("w", encoding="utf-8") as file:
            for copy in range(times):
                ending = f" {copy}" if copy else ""
                file.writelines(f"{line.strip()}{ending}\n" for line in own)
    data = load_recipe(RECIPE).data
    return replace(data, train=FILES, valid=(), test=(), drop=())


def asked(folder: Path) -> dict[str, Any]:
    before = sizes(folder)
    corpus = open_corpus(folder / "prepared")
    questions = unpacked("multi30k/test_2016_flickr.de.gz")[:N_ASKED]
    started = time.perf_counter()
    text = TrainingText(corpus)
    text.ask(questions[0])
    first = time.perf_counter() - started
    started = time.perf_counter()
    for question in questions[1:]:
        text.ask(question)
    further = (time.perf_counter() - started) / (len(questions) - 1)
    return {
        "pairs": text.n,
        "tokens_searched": len(text.tokens),
        "is_all": text.is_all,
        "seconds_to_the_first_answer": round(first, 3),
        "seconds_for_a_further_answer": round(further, 4),
        "held_mb": round(held_bytes(text) / 1e6),
        "bytes_stored": sum(sizes(folder).values()) - sum(before.values()),
        "pieces_whose_count_differs_from_grep": wrong_counts(text, folder / FILES[0]),
        "pieces_counted": N_COUNTED,
        "sentences_whose_nearest_differ_from_brute_force": wrong_nearest(text, corpus, questions),
        "sentences_compared": min(N_COMPARED, len(questions)),
    }


def sizes(folder: Path) -> dict[Path, int]:
    """Of all files but the note of what was verified."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name[0] != ".")
    return {path: path.stat().st_size for path in files}


def held_bytes(text: TrainingText) -> int:
    """Of what stays in memory for the next question."""
    arrays = (text.tokens, text.line_of, text.documents, text.ends)
    return sum(array.nbytes for array in arrays) + sum(map(getsizeof, text.lines))


def wrong_counts(text: TrainingText, file: Path) -> list[str]:
    """Of pieces of one to nine characters, cut from the text at random."""
    draw, whole = random.Random(1), file.read_text(encoding="utf-8").replace("\n", " ")
    pieces = {"%'d", "%", "never"}
    while len(pieces) < N_COUNTED:
        at = draw.randrange(len(whole) - 9)
        pieces.add(whole[at : at + draw.randint(1, 9)].strip() or "a")
    wrong: list[str] = []
    for piece in sorted(pieces):
        grep = subprocess.run(["grep", "-Fc", "--", piece, file], capture_output=True, text=True)
        if text.count(piece) != int(grep.stdout):
            wrong.append(piece)
    return wrong


def wrong_nearest(text: TrainingText, corpus: Corpus, questions: list[str]) -> list[str]:
    store = corpus.store("train", "source")
    pairs = [{*ngrams_of(ids.tolist())} for ids in store.documents(np.arange(text.n))]
    lines_with = Counter(ngram for ngrams in pairs for ngram in ngrams)
    wrong: list[str] = []
    for question in questions[:N_COMPARED]:
        own = {*ngrams_of(text.tokenizer.encode(question))}
        scores = [
            sum(math.log(text.n / lines_with[ngram]) for ngram in own & ngrams) for ngrams in pairs
        ]
        best = sorted(range(text.n), key=lambda line: (-round(scores[line], 9), line))[:3]
        if [pair.number for pair in text.ask(question).nearest] != best:
            wrong.append(question)
    return wrong


if __name__ == "__main__":
    main()
