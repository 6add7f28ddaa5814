"""A glossary: how many of its terms a translation uses, and what that costs.

    python -m benchmarks.glossary                              # what is missing
    python -m benchmarks.glossary --minutes 5 --seeds 1 --trial
    python -m benchmarks.glossary --report

Multi30k, English to French. Terms are pairs of words that occur together in the training text
(Dice's coefficient, each the other's best). Half of them are taught; the glossary of the test has
200 or more that its sources have, taught or not. Three arms, the same recipe and text: "annotated"
reads terms in its sources (`data.glossary`), "plain" does not and has them forced, "masked" has a
placeholder in the place of a term, in training and in translating. A line of
results/glossary.jsonl for each run that is finished: BLEU with and without the glossary, and the
share of the terms that are used.
"""

import argparse
import csv
import gzip
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any, NamedTuple
from zlib import crc32

import torch

import clearhead
from benchmarks.own_text import chosen, train
from clearhead.config import Recipe, load_recipe, with_values
from clearhead.config.recipe import TEMPLATES
from clearhead.environment import data_folder, keep_freed_memory
from clearhead.evaluation.translation import translation_scores
from clearhead.localise.glossary import Glossary, Term, is_used, terms_of_both
from clearhead.training import sizing
from clearhead.training.size_reasons import reasons_for
from tools.result import FOLDER, circumstances

LINES = FOLDER / "glossary.jsonl"
WORK = Path("runs/glossary")
ARMS = ("annotated", "plain", "masked")
KEYS = ("arm", "seed", "minutes")
N_TERMS = 240
LEAST = 5
"""Pairs of training that have both words of a term."""
LEAST_DICE = 0.6
MOST_OF_ALL = 0.02
"""Share of the training text that a term may stand in: no function words."""
N_PLACEHOLDERS = 8
MAX_NEW = 64


class Pair(NamedTuple):
    source: str
    target: str


def pairs(split: str) -> list[Pair]:
    sides: list[list[str]] = []
    for language in ("en", "fr"):
        path = data_folder() / "multi30k" / f"{split}.{language}.gz"
        sides.append(gzip.decompress(path.read_bytes()).decode().splitlines())
    return [Pair(*pair) for pair in zip(*sides)]


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]{3,}", text.lower()))


def aligned_terms(text: list[Pair]) -> dict[str, str]:
    """Words that occur together, each the other's best."""
    of_source: Counter[str] = Counter()
    of_target: Counter[str] = Counter()
    together: Counter[tuple[str, str]] = Counter()
    for pair in text:
        sources, targets = words(pair.source), words(pair.target)
        of_source.update(sources)
        of_target.update(targets)
        together.update((source, target) for source in sources for target in targets)
    dice = {
        both: 2 * n / (of_source[both[0]] + of_target[both[1]])
        for both, n in together.items()
        if n >= LEAST and of_source[both[0]] <= MOST_OF_ALL * len(text)
    }
    best: dict[tuple[int, str], tuple[float, str]] = {}
    for (source, target), value in dice.items():
        for key, other in (((0, source), target), ((1, target), source)):
            best[key] = max(best.get(key, (0.0, "")), (value, other))
    return {
        source: target
        for (side, source), (value, target) in sorted(best.items())
        if side == 0 and value >= LEAST_DICE and best[1, target][1] == source and source != target
    }


def is_taught(term: str) -> bool:
    return crc32(term.encode()) % 2 == 0


def glossary_of_test(terms: dict[str, str], text: list[Pair]) -> dict[str, str]:
    """Terms that the sources of the test have, drawn by a fixed seed."""
    glossary = Glossary(terms)
    found = {term.source.lower() for pair in text for term in glossary.terms_in([pair.source])}
    drawn = Random(0).sample(sorted(found), min(N_TERMS, len(found)))
    return {source: terms[source] for source in sorted(drawn)}


def masked_pair(pair: Pair, glossary: Glossary) -> Pair:
    """Half of the pairs, with {t0} in the place of a term in both."""
    if crc32("\t".join(pair).encode()) % 2:
        return pair
    source, target = "", pair.target
    n_masked = 0
    for piece in terms_of_both(glossary, [pair.source], pair.target):
        text = piece.source if isinstance(piece, Term) else str(piece)
        if isinstance(piece, Term) and n_masked < N_PLACEHOLDERS:
            form = re.compile(rf"\b{re.escape(piece.target.strip())}\b", re.I)
            target, n = form.subn(f"{{t{n_masked}}}", target, count=1)
            if n:
                text = f"{' ' * text.startswith(' ')}{{t{n_masked}}}"
                n_masked += 1
        source += text
    return Pair(source, target)


def translate_masked(
    model: clearhead.TextModel, sources: list[str], glossary: Glossary
) -> list[str]:
    masked: list[str] = []
    terms: list[list[str]] = []
    for source in sources:
        pieces, own = "", list[str]()
        for piece in glossary.with_terms([source]):
            if isinstance(piece, Term) and len(own) < N_PLACEHOLDERS:
                pieces += f"{' ' * piece.source.startswith(' ')}{{t{len(own)}}}"
                own.append(piece.target.strip())
            else:
                pieces += piece.source if isinstance(piece, Term) else str(piece)
        masked.append(pieces)
        terms.append(own)
    translations = model.translate(masked, max_new=MAX_NEW)
    for place, own in enumerate(terms):
        for number, target in enumerate(own):
            translations[place] = translations[place].replace(f"{{t{number}}}", target)
    return translations


def used(texts: list[Pair], translations: Iterable[str], glossary: Glossary) -> dict[str, Any]:
    """How many of the terms in the sources the translations use; taught ones and others."""
    counts: Counter[str] = Counter()
    for pair, translation in zip(texts, translations):
        for term in glossary.terms_in([pair.source]):
            kind = "taught" if is_taught(term.source.lower()) else "new"
            counts[f"terms_{kind}"] += 1
            counts[f"used_{kind}"] += is_used(term.target, translation)
    return dict(sorted(counts.items()))


def recipe_of(arm: str, seed: int, minutes: float) -> tuple[Recipe, list[str], dict[str, str]]:
    text = pairs("train")
    terms = aligned_terms(text)
    taught = {source: target for source, target in terms.items() if is_taught(source)}
    WORK.mkdir(parents=True, exist_ok=True)
    if arm == "masked":
        glossary = Glossary(taught)
        text = [masked_pair(pair, glossary) for pair in text]
    file = (WORK / f"train-{'masked' if arm == 'masked' else 'plain'}.jsonl").absolute()
    rows = (json.dumps(pair._asdict(), ensure_ascii=False) for pair in text)
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    csv_file = (WORK / "taught.csv").absolute()
    with csv_file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows(taught.items())
    template = load_recipe(str(TEMPLATES / "my-pairs.toml"))
    data = replace(
        template.data,
        train=(str(file),),
        format="jsonl",
        columns=("source", "target"),
        placeholders=N_PLACEHOLDERS if arm == "masked" else 0,
        glossary=str(csv_file) if arm == "annotated" else None,
    )
    template = replace(template, data=data)
    sized = sizing.size_recipe(template, minutes, time.process_time)
    seeds = {"train.seed": seed, "batches.seed": seed}
    return with_values(template, {**sized.values, **seeds}), reasons_for(sized), terms


def take(arm: str, seed: int, minutes: float, sentences: int) -> dict[str, Any]:
    here = (WORK / f"{arm}-{seed}-{minutes:g}").absolute()
    recipe, reasons, terms = recipe_of(arm, seed, minutes)
    core_minutes = train(recipe, reasons, here)
    model, texts = clearhead.load(here / "run"), pairs("test_2016_flickr")[:sentences]
    glossary = Glossary(glossary_of_test(terms, texts))
    sources, references = [pair.source for pair in texts], [pair.target for pair in texts]
    without = model.translate(sources, max_new=MAX_NEW)
    if arm == "masked":
        following = translate_masked(model, sources, glossary)
    else:
        following = model.translate(sources, glossary=glossary, max_new=MAX_NEW)
    measured = {
        name: {
            **used(texts, translations, glossary),
            **{
                score.name: round(score.value, 2)
                for score in translation_scores(translations, references, n_resamples=0)
            },
        }
        for name, translations in (("without", without), ("with", following))
    }
    return {
        "arm": arm,
        "seed": seed,
        "minutes": minutes,
        "sentences": len(texts),
        "terms": len(glossary),
        "terms_taught": sum(map(is_taught, terms)),
        "reference": used(texts, references, glossary),
        **measured,
        "core_minutes": round(core_minutes, 2),
        **chosen(recipe),
        "load": round(os.getloadavg()[1], 1),
        **{key: circumstances()[key] for key in ("commit", "date", "machine")},
    }


def finished() -> list[dict[str, Any]]:
    if not LINES.is_file():
        return []
    return [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]


def report(lines: list[dict[str, Any]]) -> None:
    for arm in ARMS:
        mine = [line for line in lines if line["arm"] == arm]
        for how in ("without", "with") if mine else ():
            shares = [
                sum(line[how].get(f"used_{kind}", 0) for line in mine)
                / max(1, sum(line[how].get(f"terms_{kind}", 0) for line in mine))
                for kind in ("taught", "new")
            ]
            bleu = mean(line[how]["BLEU"] for line in mine)
            print(f"{arm:<10}{how:<8} the glossary: BLEU {bleu:.2f}, used {shares[0]:.1%} of the "
                  f"terms taught, {shares[1]:.1%} of the others, {len(mine)} seeds")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0, help="core minutes of each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--sentences", type=int, default=1000, help="of the test")
    parser.add_argument("--trial", action="store_true", help="print the lines, and keep none")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.report:
        report(finished())
        return
    torch.set_num_threads(1)
    keep_freed_memory()
    done = [[line[key] for key in KEYS] for line in finished()]
    for seed in arguments.seeds:
        for arm in ARMS:
            if [arm, seed, arguments.minutes] in done:
                continue
            measured = take(arm, seed, arguments.minutes, arguments.sentences)
            line = json.dumps(measured, ensure_ascii=False)
            print(line, flush=True)
            if not arguments.trial:
                with LINES.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
