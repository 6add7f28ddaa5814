"""Classifiers as `clearhead new` makes them, beside TF-IDF and logistic regression: film reviews,
Debian package descriptions by section, Tang poems against Song lyrics. In the arm "masked", half of
the time goes to a masked language model of the same texts, from which the classifier starts.

    pip install "clearhead[eval]" opencc-python-reimplemented
    python -m benchmarks.classifiers                      # every run that is missing, about 2 hours
    python -m benchmarks.classifiers --corpora reviews --seeds 1 --arms masked
    python -m benchmarks.classifiers --report             # what the finished runs say

Each finished run is a line of results/classifiers.jsonl, and the same command does those that are
missing; a run that was interrupted begins anew. A run gets five minutes of one processor core. The
descriptions are those that apt knows on this machine (`apt-cache dumpavail`). Both kinds of poems
are turned into simplified characters: the corpus has each in a script of its own, which would tell
them apart.
"""

import argparse
import json
import random
import re
import shutil
import subprocess
import time
from collections import defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.own_text import chosen, clearhead, train, unpacked
from clearhead.config import Recipe, load_recipe, with_values
from clearhead.config.recipe import TEMPLATES
from clearhead.training import sizing
from clearhead.training.size_reasons import reasons_for
from clearhead.training.start import recipe_from
from tools.result import FOLDER, circumstances

WORK = Path("runs/classifiers")
LINES = FOLDER / "classifiers.jsonl"
MINUTES = 5.0
SEEDS = (1, 2, 3)
ARMS = ("plain", "masked")
N_SECTIONS = 12
N_OF_SECTION = 1_000
N_POEMS = 8_000  # of each kind

Labelled = dict[str, list[str]]
"""Texts by label."""


def reviews() -> Labelled:
    folder = "mr_sentence_polarity/rt-polarity"
    return {label: unpacked(f"{folder}.{label[:3]}.gz") for label in ("positive", "negative")}


def descriptions() -> Labelled:
    """The one-line descriptions of packages in the largest sections, each description once."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    known = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True)
    for package in known.stdout.split("\n\n"):
        section = re.search(r"^Section: (?:\S+/)?(\S+)$", package, flags=re.M)
        text = re.search(r"^Description(?:-en)?: (.+)$", package, flags=re.M)
        if section and text:
            found[section[1]][text[1]] = None
    largest = sorted(found, key=lambda section: (-len(found[section]), section))[:N_SECTIONS]
    draw = random.Random(1)
    return {
        section: draw.sample([*found[section]], min(N_OF_SECTION, len(found[section])))
        for section in largest
    }


def poems() -> Labelled:
    from opencc import OpenCC  # pyright: ignore[reportMissingImports]

    simplified, draw = OpenCC("t2s"), random.Random(1)
    found: Labelled = {}
    for label, name in (("tang", "quantangshi"), ("song", "songci")):
        lines = draw.sample(unpacked(f"chinese_poetry/{name}.train.tsv.gz"), N_POEMS)
        found[label] = [simplified.convert(line.split("\t")[2]) for line in lines]
    return found


CORPORA = {"reviews": reviews, "descriptions": descriptions, "poems": poems}


def files_of(corpus: str) -> dict[str, Path]:
    """A file for each label, as its owner would have them."""
    folder = WORK / corpus
    if not (folder / "done").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for label, texts in CORPORA[corpus]().items():
            lines = [" ".join(text.split()) for text in texts]
            (folder / f"{label}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / "done").touch()
    return {path.stem: path.absolute() for path in sorted(folder.glob("*.txt"))}


def recipe_of(
    corpus: str, seed: int, minutes: float, *, masked: bool = False, start: Path | None = None
) -> tuple[Recipe, list[str]]:
    """As `clearhead new` would write it (with --masked, or with --from `start`), for minutes of the
    processor."""
    files = files_of(corpus)
    template = load_recipe(str(TEMPLATES / ("my-masked.toml" if masked else "my-labels.toml")))
    labels = template.data.labels if masked else tuple(files)
    data = replace(template.data, train=tuple(map(str, files.values())), labels=labels)
    template = replace(template, data=data)
    if start is not None:
        template = recipe_from(template, start)
    sized = sizing.size_recipe(template, minutes, time.process_time)
    seeds = {"train.seed": seed, "batches.seed": seed}
    return with_values(template, {**sized.values, **seeds}), reasons_for(sized)


def take(corpus: str, seed: int, arm: str) -> dict[str, Any]:
    here = WORK / "runs" / f"{corpus}-{arm}-{seed}"
    masked_minutes, start, budget = 0.0, None, MINUTES
    if arm == "masked":
        start, budget = here.with_name(f"{here.name}-first") / "run", MINUTES / 2
        masked_minutes = train(*recipe_of(corpus, seed, budget, masked=True), start.parent)
    recipe, reasons = recipe_of(corpus, seed, budget, start=start)
    minutes = masked_minutes + train(recipe, reasons, here)
    said, _ = clearhead("evaluate", here / "run", "--format", "jsonl")
    measured = json.loads(said)
    names = ("accuracy", "low", "high", "n", "n_too_long", "baseline")
    return {
        "corpus": corpus,
        "arm": arm,
        "seed": seed,
        **{name: measured[name] for name in names},
        "core_minutes": round(minutes, 2),
        "masked_minutes": round(masked_minutes, 2),
        **chosen(recipe),
        **{key: circumstances()[key] for key in ("commit", "date", "machine")},
    }


def finished() -> list[dict[str, Any]]:
    if not LINES.is_file():
        return []
    return [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]


def report(lines: list[dict[str, Any]]) -> None:
    print("| corpus | arm | test texts | accuracy by seed (95% interval) | mean | baseline |")
    print("|---|---|---|---|---|---|")
    for corpus, arm in product(CORPORA, ARMS):
        mine = [line for line in lines if (line["corpus"], line["arm"]) == (corpus, arm)]
        if not mine:
            continue
        each = ", ".join(
            f"{100 * line['accuracy']:.1f} ({100 * line['low']:.1f} … {100 * line['high']:.1f})"
            for line in mine
        )
        reached, base = mean(line["accuracy"] for line in mine), mine[0]["baseline"]
        below = "" if reached >= base else ", which is better"
        print(f"| {corpus} | {arm} | {mine[0]['n']:,} | {each} | {100 * reached:.1f} | ", end="")
        print(f"{100 * base:.1f}{below} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpora", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if not arguments.report:
        there = {(line["corpus"], line["seed"], line["arm"]) for line in finished()}
        for seed, corpus, arm in product(arguments.seeds, arguments.corpora, arguments.arms):
            if (corpus, seed, arm) not in there:
                line = take(corpus, seed, arm)
                with LINES.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
    report(finished())


if __name__ == "__main__":
    main()
