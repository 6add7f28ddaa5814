"""Catalogues of packages that training never saw: does every string keep its placeholders, and what
does that cost?

    python -m benchmarks.catalogues fr
    python -m benchmarks.localise fr                           # what is missing
    python -m benchmarks.localise fr --minutes 5 --seeds 1 --trial
    python -m benchmarks.localise fr --seeds 1 --fill-again    # by models that are trained already
    python -m benchmarks.localise zh_CN --engine               # the share that CTranslate2 breaks
    python -m benchmarks.localise fr --report

Two arms, the same recipe and text: `data.placeholders` and none. The first fills the held-out
catalogues, emptied; the second translates the same strings as plain text. All of them are filled
with the first seed, with the others those of the packages that are scored. A line of
results/localise.jsonl for each run that is finished. `--engine` fills the catalogues of the scored
packages by the engine ctranslate2, which has no constraint, with the models that are trained
already, and writes results/localise_engine.json.
"""

import argparse
import json
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch

import clearhead
from benchmarks.catalogues import HELD_OUT, SCORED, catalogues, write_train
from benchmarks.own_text import chosen, train
from clearhead.config import load_recipe, with_values
from clearhead.config.recipe import TEMPLATES
from clearhead.environment import keep_freed_memory
from clearhead.evaluation.translation import translation_scores
from clearhead.files import write_whole
from clearhead.intake.own_text import N_PLACEHOLDERS
from clearhead.localise.catalogues import Catalogue
from clearhead.localise.masking import mask
from clearhead.localise.spans import SpanRules
from clearhead.training import sizing
from clearhead.training.size_reasons import reasons_for
from tools.result import FOLDER, circumstances, write_result

LINES = FOLDER / "localise.jsonl"
WORK = Path("runs/localise")
ARMS = {"placeholders": N_PLACEHOLDERS, "plain": 0}
KEYS = ("language", "arm", "seed", "minutes")


class HeldOutText(NamedTuple):
    """A string of a held-out catalogue."""

    source: str
    reference: str
    rules: SpanRules


def held_out(language: str, packages: list[str]) -> list[HeldOutText]:
    """Strings with one form: plural forms are filled and checked by gettext, and not scored."""
    return [
        HeldOutText(entry.sources[0], entry.translated[0].target, entry.rules)
        for path in catalogues(language, packages)
        for entry in Catalogue(path).entries
        if len(entry.sources) == 1 and entry.translated
    ]


def emptied(path: Path, out: Path) -> Path:
    """The catalogue as it was before anybody had translated it."""
    catalogue = Catalogue(path)
    for entry in catalogue.entries:
        n_forms = len(entry.sources)
        entry.unit.target = [""] * n_forms if entry.unit.hasplural() else ""
        entry.unit.markfuzzy(False)
    catalogue.write(out)
    return out


def is_accepted(path: Path) -> bool:
    """Whether gettext takes a catalogue."""
    check = ["msgfmt", "-c", "--use-fuzzy", "-o", "/dev/null", str(path)]
    return subprocess.run(check, capture_output=True, check=False).returncode == 0


def fill(model: clearhead.TextModel, paths: list[Path], folder: Path) -> dict[str, Any]:
    """Fills catalogues, emptied; what became of them, and each string's translation."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    translations: dict[str, str] = {}
    n_open, accepted, empty_accepted = 0, 0, 0
    for number, path in enumerate(paths):
        filled = emptied(path, folder / f"{number}.po")
        empty_accepted += is_accepted(filled)
        n_open += len(model.fill_catalogue(filled).open)
        accepted += is_accepted(filled)
        for entry in Catalogue(filled).entries:
            if len(entry.sources) == 1:
                translations[entry.sources[0]] = str(entry.unit.target)
    return {
        "files": len(paths),
        "empty_files_accepted": empty_accepted,
        "files_accepted": accepted,
        "open": n_open,
        "translations": translations,
    }


def by_engine(language: str, seeds: list[int], minutes: float) -> dict[str, Any]:
    """How many texts the engine ctranslate2 translates, and how many of them have lost a span, so
    that clearhead decodes them again."""
    translated = again = 0
    for seed in seeds:
        here = folder_of(language, "placeholders", seed, minutes)
        model = clearhead.load(here / "run")
        (here / "by-engine").mkdir(exist_ok=True)
        for number, path in enumerate(catalogues(language, SCORED)):
            empty = emptied(path, here / "by-engine" / f"{number}.po")
            filled = model.fill_catalogue(empty, engine="ctranslate2")
            assert is_accepted(empty), empty
            translated, again = translated + filled.translated, again + filled.again
    return {
        "language": language,
        "minutes": minutes,
        "seeds": seeds,
        "entries_translated": translated,
        "texts_decoded_again": again,
    }


def kept(texts: list[HeldOutText], translations: dict[str, str]) -> dict[str, int]:
    """How many strings have spans and keep them all, how many have a translation that does not,
    and how many are not translated."""
    with_spans = [text for text in texts if mask(text.source, text.rules).spans]
    n_kept = sum(
        mask(text.source, text.rules).is_kept_by(translations[text.source]) for text in with_spans
    )
    n_empty = sum(not translations[text.source] for text in with_spans)
    return {
        "strings": len(texts),
        "with_spans": len(with_spans),
        "kept": n_kept,
        "broken": len(with_spans) - n_kept - n_empty,
        "empty_or_copied": sum(
            translations[text.source] in ("", text.source) and text.reference != text.source
            for text in texts
        ),
    }


def scores_of(texts: list[HeldOutText], translations: dict[str, str]) -> dict[str, float]:
    scores = translation_scores(
        [translations[text.source] for text in texts],
        [text.reference for text in texts],
        n_resamples=0,
    )
    return {score.name: round(score.value, 2) for score in scores}


def trained(language: str, arm: str, seed: int, minutes: float) -> dict[str, Any]:
    """Trains a model; the minutes that it took, and what the sizing rules decided."""
    here = folder_of(language, arm, seed, minutes)
    template = load_recipe(str(TEMPLATES / "my-pairs.toml"))
    data = replace(
        template.data,
        train=(str(write_train(language).absolute()),),
        format="jsonl",
        columns=("source", "target"),
        placeholders=ARMS[arm],
    )
    sized = sizing.size_recipe(replace(template, data=data), minutes, time.process_time)
    seeds = {"train.seed": seed, "batches.seed": seed}
    recipe = with_values(replace(template, data=data), {**sized.values, **seeds})
    used = train(recipe, reasons_for(sized), here)
    return {"core_minutes": round(used, 2), **chosen(recipe)}


def folder_of(language: str, arm: str, seed: int, minutes: float) -> Path:
    return (WORK / f"{language}-{arm}-{seed}-{minutes:g}").absolute()


def take(
    language: str, arm: str, seed: int, minutes: float, training: dict[str, Any]
) -> dict[str, Any]:
    """Fills the catalogues by a trained model, or translates their strings."""
    here = folder_of(language, arm, seed, minutes)
    packages = HELD_OUT if seed == 1 and arm == "placeholders" else SCORED
    model, texts = clearhead.load(here / "run"), held_out(language, packages)
    if arm == "placeholders":
        filled = fill(model, catalogues(language, packages), here / "filled")
        translations = filled.pop("translations")
    else:
        sources = list({text.source: None for text in texts})
        translations, filled = dict(zip(sources, model.translate(sources))), {}
    return {
        "language": language,
        "arm": arm,
        "seed": seed,
        "minutes": minutes,
        **filled,
        **kept(texts, translations),
        "scores": scores_of(held_out(language, SCORED), translations),
        **training,
        **{key: circumstances()[key] for key in ("commit", "date", "machine")},
    }


def finished() -> list[dict[str, Any]]:
    if not LINES.is_file():
        return []
    return [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]


def report(lines: list[dict[str, Any]]) -> None:
    for language in sorted({line["language"] for line in lines}):
        for arm in ARMS:
            mine = [line for line in lines if (line["language"], line["arm"]) == (language, arm)]
            if mine:
                n_kept, n_spans = (
                    sum(line[key] for line in mine) for key in ("kept", "with_spans")
                )
                bleu = mean(line["scores"]["BLEU"] for line in mine)
                spans = f"{n_kept:,} of {n_spans:,} keep all spans"
                print(f"{language:<6}{arm:<14}{spans}, BLEU {bleu:.2f}, {len(mine)} seeds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("language", choices=["fr", "zh_CN"])
    parser.add_argument("--minutes", type=float, default=20.0, help="core minutes of each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--trial", action="store_true", help="print the lines, and keep none")
    parser.add_argument("--fill-again", action="store_true", help="replace the lines of these runs")
    parser.add_argument("--engine", action="store_true", help="by models that are trained already")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.report:
        report(finished())
        return
    if arguments.engine:
        measured = by_engine(arguments.language, arguments.seeds, arguments.minutes)
        print(write_result("localise_engine", measured), measured)
        return
    torch.set_num_threads(1)
    keep_freed_memory()
    done = {tuple(line[key] for key in KEYS): line for line in finished()}
    for seed in arguments.seeds:
        for arm in ARMS:
            key = (arguments.language, arm, seed, arguments.minutes)
            if (key in done) != arguments.fill_again or (arguments.fill_again and not ARMS[arm]):
                continue
            old = done.get(key)
            names = ("core_minutes", *chosen(load_recipe(str(TEMPLATES / "my-pairs.toml"))))
            training = {name: old[name] for name in names} if old else trained(*key)
            done[key] = take(*key, training)
            print(json.dumps(done[key], ensure_ascii=False), flush=True)
            if not arguments.trial:
                write_whole(LINES, "".join(f"{json.dumps(line)}\n" for line in done.values()))


if __name__ == "__main__":
    main()
