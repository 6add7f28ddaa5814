"""A model of one kind of text is trained further on another: tatoeba-en-zh on 5,000 pairs of
Python's documentation, against a model from scratch at equal core minutes.

    python -m benchmarks.adaptation                           # what is missing
    python -m benchmarks.adaptation --minutes 1 --seeds 1
    python -m benchmarks.adaptation --report

The training of the first model, which the package ships, is not counted: it is what somebody has
already. The arms "rehearsed" have the text of that training too, and a share of their steps read
it. A line of results/adaptation.jsonl for each run that is finished. The sizes are those that
`clearhead new` chooses, with --from and without it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from benchmarks.own_text import (
    WORK,
    Job,
    Run,
    chosen,
    clearhead,
    cut,
    pairs_of,
    recipe_of,
    score,
    train,
)
from clearhead.api.locating import SHIPPED
from clearhead.config import Recipe, load_recipe, recipe_toml, with_values
from clearhead.environment import environment_with, keep_freed_memory
from tools.result import FOLDER, circumstances

LINES = FOLDER / "adaptation.jsonl"
NEW = Job("adaptation", "my-pairs", "python_docs_zh_cn", 5_000)
OLD = Job("adaptation-before", "my-pairs", "tatoeba_cmn_eng", 5_000)
"""Only its test set is used: what the model still knows of its first text."""
START = "tatoeba-en-zh"
SHARES = {"rehearsed": 0.5, "rehearsed-0.3": 0.3, "rehearsed-0.2": 0.2}
THERE = {"hugging-face": 0.0, "hugging-face-0.3": 0.3}
"""Shares of the first text among the rows that Hugging Face's Seq2SeqTrainer reads."""
ARMS = ("from", *SHARES, "scratch", *THERE)
KEYS = ("arm", "seed", "minutes")


def finished() -> list[dict[str, Any]]:
    if not LINES.is_file():
        return []
    return [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]


def first_text() -> Path:
    """The text of the first training, prepared with the model's tokenizer."""
    here = WORK / "adaptation-first"
    prepared = (here / "prepared").absolute()
    if not prepared.is_dir():
        here.mkdir(parents=True, exist_ok=True)
        own = {"tokenizer": "file", "tokenizer_file": str(SHIPPED / START / "tokenizer.json")}
        settings = {f"data.{name}": value for name, value in own.items()}
        recipe = with_values(load_recipe(START), {**settings, "data.vocab_size": None})
        (here / "first.toml").write_text(recipe_toml(recipe), encoding="utf-8")
        clearhead("prepare", here / "first.toml", "--out", prepared, "--processes", 1)
    return prepared


def first_lines() -> Path:
    """The text of the first training as lines."""
    here = WORK / "adaptation-first"
    here.mkdir(parents=True, exist_ok=True)
    for number, side in enumerate(("source", "target")):
        lines = [pair[number] for pair in pairs_of(OLD.corpus)[0]]
        (here / f"train.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return here.absolute()


def train_there(
    recipe: Recipe, share: float, run: Run, new: Path, here: Path
) -> tuple[Recipe, float]:
    """Trains by Hugging Face's Seq2SeqTrainer, and imports the result; the recipe with the steps
    that the minutes allowed, and the core minutes that they took."""
    assert recipe.model is not None
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    exported = WORK / "adaptation-exported"
    if not exported.is_dir():
        clearhead("export", START, exported, "--to", "huggingface")
    train, shared = asdict(recipe.train), ("lr", "final_lr", "warmup_steps", "beta1", "beta2")
    names = (*shared, "weight_decay", "clip_norm", "label_smoothing")
    settings = {
        **{name: train[name] for name in names},
        "p_dropout": recipe.model.p_dropout,
        "batch_tokens": recipe.batches.batch_tokens,
    }
    command = [sys.executable, "-m", "benchmarks.adaptation_trainer", "--model", exported]
    command += ["--new", new, "--first", first_lines(), "--share", share, "--seed", run.seed]
    command += ["--minutes", run.minutes, "--settings", json.dumps(settings), "--out", here]
    one_thread = environment_with(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    subprocess.run([str(word) for word in command], check=True, env=one_thread)
    clearhead("import", here / "model", here / "run")
    facts = json.loads((here / "facts.json").read_text(encoding="utf-8"))
    return with_values(recipe, {"train.steps": facts["steps"]}), facts["core_minutes"]


def take(arm: str, seed: int, minutes: float) -> dict[str, Any]:
    here = (WORK / "adaptation-runs" / f"{arm}-{seed}-{minutes:g}").absolute()
    new, old = cut(NEW), cut(OLD)
    run = Run(NEW, minutes, seed)
    start = None if arm == "scratch" else SHIPPED / START
    recipe, reasons = recipe_of(run, new, start, first_text() if arm in SHARES else None)
    if arm in THERE:
        recipe, used = train_there(recipe, THERE[arm], run, new, here)
    else:
        if arm in SHARES:
            recipe = with_values(recipe, {"train.rehearse_share": SHARES[arm]})
        used = train(recipe, reasons, here)
    return {
        "arm": arm,
        "seed": seed,
        "minutes": minutes,
        "scores": score(NEW, new, here / "run"),
        "before": score(OLD, old, START) if start else None,
        "after": score(OLD, old, here / "run"),
        "core_minutes": round(used, 2),
        **chosen(recipe),
        "load": round(os.getloadavg()[1], 1),
        **{key: circumstances()[key] for key in ("commit", "date", "machine")},
    }


def report(lines: list[dict[str, Any]]) -> None:
    for minutes in sorted({line["minutes"] for line in lines}):
        for arm in ARMS:
            mine = [line for line in lines if (line["arm"], line["minutes"]) == (arm, minutes)]
            for name in ("BLEU", "chrF++"):
                values = [line["scores"][name] for line in mine]
                if values:
                    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
                    print(
                        f"{minutes:g} min  {arm:<17}{name:<8}{mean(values):.2f}{spread} "
                        f"({len(values)} seeds); on the first text "
                        f"{mean(line['after'][name] for line in mine):.2f}"
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="core minutes of each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", default=ARMS, choices=ARMS)
    parser.add_argument("--trial", action="store_true", help="print the lines, and keep none")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.report:
        report(finished())
        return
    torch.set_num_threads(1)
    keep_freed_memory()  # as training does: steps are timed here to size the recipe
    done = [[line[key] for key in KEYS] for line in finished()]
    for seed in arguments.seeds:
        for arm in arguments.arms:
            if [arm, seed, arguments.minutes] in done:
                continue
            line = json.dumps(take(arm, seed, arguments.minutes), ensure_ascii=False)
            print(line, flush=True)
            if not arguments.trial:
                with LINES.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
