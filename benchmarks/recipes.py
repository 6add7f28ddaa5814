"""Recipes brought to results, by the commands that a user types, each a process of its own.

    python -m benchmarks.recipes train multi30k-de-en --seed 1   # killed, it goes on next time
    python -m benchmarks.recipes write multi30k-de-en            # evaluate, export, results/*.json
    python -m benchmarks.recipes pages                           # results/*.md and the tables

Runs are kept in `runs/results` below the present folder. Time is counted in core minutes, what the
processors have worked: 60 of them are half an hour of two cores, or an hour of one, and a machine
that does other things beside it does not change them.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from benchmarks.moses_bleu import moses_bleu
from benchmarks.recipe_scores_there import score_there
from clearhead.config import load_recipe
from clearhead.data.manifest import read_manifest
from clearhead.data.order import permute
from clearhead.inspection.curves import Curve, curves_png
from clearhead.intake.sources import Cursor, Reader, find_inputs, located
from clearhead.interop.model_folder import load_model
from clearhead.training.changes import recipe_facts
from clearhead.training.report import read_metrics
from tools.result import circumstances
from tools.result_pages import RESULTS, same_recipe, write_pages

WORK = Path("runs/results")
USAGE = "usage.jsonl"
BEAM = 5
N_SAMPLES = 10
LOWERCASED = ("multi30k-en-de",)  # what others have published for it does not know case
PROMPTS = {"shakespeare-char": "ROMEO:", "hongloumeng": "宝玉", "wikitext-2": "The"}


def clearhead(*arguments: object, given: str | None = None) -> str:
    """What a command says; its complaints go to the terminal."""
    command = [sys.executable, "-m", "clearhead", *map(str, arguments)]
    run = subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, check=True)
    return run.stdout


def run_folder(label: str, seed: int) -> Path:
    return WORK / f"{label}-{seed}"


def prepared_folder(name: str) -> Path:
    return WORK / "prepared" / name


def train(name: str, label: str, seed: int, overrides: list[str]) -> None:
    folder = run_folder(label, seed)
    if not (prepared_folder(name) / "manifest.json").exists():
        clearhead("prepare", name, "--out", prepared_folder(name))
    seeds = ["--train.seed", seed, "--batches.seed", seed]
    where = ["--prepared", prepared_folder(name), "--folder", folder]
    command = ["train", name, *where, *seeds, *overrides]
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "clearhead", *map(str, command)])
    _, status, used = os.wait4(process.pid, 0)
    told = {
        "core_seconds": used.ru_utime + used.ru_stime,
        "seconds": time.monotonic() - started,
        "peak_memory_mb": round(used.ru_maxrss / 1024),
    }
    with (folder / USAGE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")
    sys.exit(os.waitstatus_to_exitcode(status))


def write(name: str, label: str, seeds: list[int], overrides: list[str]) -> None:
    """Everything about a recipe that has been trained with these seeds."""
    first = run_folder(label, seeds[0])
    recipe = load_recipe(str(first / "recipe.toml"))
    assert same_recipe(recipe_facts(recipe), name, overrides), (
        f"{first} was trained with another recipe than {name} {' '.join(overrides)}"
    )
    documents = split_documents(first)
    runs = [measure_run(name, label, seed) for seed in seeds]
    manifest = read_manifest(prepared_folder(name))
    result = {
        **circumstances(),
        "recipe": name,
        "label": label,
        "commands": commands(name, overrides),
        "overrides": overrides,
        "parameters": n_parameters(first),
        "config": recipe_facts(recipe),
        "data": {"fingerprint": manifest.fingerprint, "inputs": manifest.inputs},
        "runs": runs,
        "scores": {
            key: {
                "mean": round(mean(run["scores"][key]["value"] for run in runs), 4),
                "spread": round(stdev(run["scores"][key]["value"] for run in runs), 4)
                if len(runs) > 1
                else None,
            }
            for key in runs[0]["scores"]
        },
        "hugging_face": hugging_face(name, first, documents),
        "samples": samples(name, first, documents),
    }
    RESULTS.mkdir(exist_ok=True)
    curves = {f"seed {run['seed']}": Curve(*zip(*run["validations"])) for run in runs}
    curves_png(curves, RESULTS / f"{label}.png", title=label, y="validation loss (nats a token)")
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    (RESULTS / f"{label}.json").write_text(text, encoding="utf-8")
    write_pages()


def commands(name: str, overrides: list[str]) -> list[str]:
    """What a user types for the same."""
    change = "".join(f" {word}" for word in overrides)
    recipe = load_recipe(name)
    write = {"pairs": "translate", "language-model": "generate"}.get(recipe.data.task)
    lines: list[str] = []
    if recipe.train.start_from is not None:
        first = Path(recipe.train.start_from).parent.name  # runs/NAME/model
        lines += [f"clearhead prepare {first}", f"clearhead train {first}"]
    lines += [f"clearhead prepare {name}", f"clearhead train {name}{change}"]
    evaluate = " ".join(["clearhead evaluate", f"runs/{name}", *evaluate_options(name)])
    lines += [evaluate, f"{evaluate} --lowercase"] if name in LOWERCASED else [evaluate]
    lines += [f"clearhead {write} runs/{name}"] if write else []
    return [*lines, f"clearhead export runs/{name} {name}-hf --to huggingface"]


def evaluate_options(name: str) -> list[str]:
    if load_recipe(name).data.task != "pairs":
        return []
    if name == "copy-task":
        return ["--beam", str(BEAM), "--exact"]
    kind = tokenizer_of_bleu(name)
    return ["--beam", str(BEAM), *([] if kind == "13a" else ["--tokenize", kind])]


def tokenizer_of_bleu(name: str) -> str:
    return "zh" if name.endswith("-zh") else "13a"


def measure_run(name: str, label: str, seed: int) -> dict[str, Any]:
    folder = run_folder(label, seed)
    encoder = load_recipe(name).data.task in ("masked-lm", "classification")
    where = ["--prepared", prepared_folder(name)] if encoder else []
    told = clearhead("evaluate", folder, *evaluate_options(name), *where, "--format", "jsonl")
    used = [json.loads(line) for line in (folder / USAGE).read_text("utf-8").splitlines()]
    records = read_metrics(folder / "metrics.jsonl")
    steps = [record for record in records if "valid" not in record]
    validations = [(r["step"], round(r["loss"], 5)) for r in records if "valid" in r]
    best = min(validations, key=lambda pair: pair[1])
    scores = scores_of(told)
    if name in LOWERCASED:
        told = clearhead(
            "evaluate", folder, *evaluate_options(name), "--lowercase", "--format", "jsonl"
        )
        scores["BLEU, lower-cased"] = scores_of(told)["BLEU"]
        sources, references = map(list, zip(*split_documents(folder)))
        given = "".join(f"{source}\n" for source in sources)
        written = clearhead("translate", folder, "--beam", BEAM, given=given).splitlines()
        language = name.rpartition("-")[2]
        value = moses_bleu(written, references, language)
        scores["BLEU, lower-cased, Moses"] = {"value": value}
    if "bits_per_byte" in scores:
        scores["validation_loss"] = {"value": best[1]}
    return {
        "seed": seed,
        "steps": steps[-1]["step"],
        "epochs": steps[-1]["epoch"],
        "tokens": steps[-1]["targets"],
        "core_minutes": round(sum(use["core_seconds"] for use in used) / 60, 1),
        "wall_minutes": round(sum(use["seconds"] for use in used) / 60, 1),
        "peak_memory_mb": max(use["peak_memory_mb"] for use in used),
        "best_validation": best,
        "scores": scores,
        "validations": validations,
    }


def n_parameters(folder: Path) -> int:
    return sum(p.numel() for p in load_model(folder / "model").parameters())


def scores_of(told: str) -> dict[str, dict[str, Any]]:
    """By name: the figure, and what it takes to read it."""
    found: dict[str, dict[str, Any]] = {}
    for line in map(json.loads, told.splitlines()):
        if "signature" in line:  # sacrebleu's
            half, signature = line["half_interval"], line["signature"]
            found[line["name"]] = {
                "value": line["value"], "half_interval": half, "signature": signature
            }  # fmt: skip
        elif "accuracy" in line:
            found["accuracy"] = {
                "value": line["accuracy"],
                "low": line["low"],
                "high": line["high"],
            }
        elif line.get("name") == "exact":
            found["exact"] = {"value": line["value"]}
        else:
            per = [f"perplexity_per_{unit}" for unit in ("word", "character", "token")]
            kept = ("bits_per_byte", *per, "loss")
            found |= {key: {"value": line[key]} for key in kept if line.get(key) is not None}
    return found


def samples(name: str, folder: Path, documents: list[tuple[str, ...]]) -> list[dict[str, str]]:
    """Ten, at places of the test set that a permutation chooses; or ten continuations."""
    task = load_recipe(name).data.task
    if task == "pairs":
        places = permute(np.arange(N_SAMPLES), len(documents), 0).tolist()
        chosen = [documents[place] for place in places]
        sources = "".join(f"{source}\n" for source, _ in chosen)
        written = clearhead("translate", folder, "--beam", BEAM, given=sources).splitlines()
        if name.startswith("multi30k"):  # not ours to redistribute: our own words alone
            return [
                {"line of the test set": str(place + 1), "written": text}
                for place, text in zip(places, written, strict=True)
            ]
        return [
            {"source": source, "reference": reference, "written": text}
            for (source, reference), text in zip(chosen, written, strict=True)
        ]
    if task == "language-model":
        prompt = PROMPTS.get(name, "The")
        options = ["--max-new", 120, "--temperature", 0.8, "--top-k", 50, "--seed", 1]
        given = f"{prompt}\n" * N_SAMPLES
        told = clearhead("generate", folder, *options, "--format", "jsonl", given=given)
        texts = [json.loads(line)["texts"][0]["text"] for line in told.splitlines()]
        return [{"prompt": prompt, "written": text} for text in texts]
    return []


def split_documents(folder: Path) -> list[tuple[str, ...]]:
    """What `clearhead evaluate` measures a run on."""
    config = load_recipe(str(folder / "recipe.toml")).data
    split = "test" if config.paths("test") else "valid"
    reader = Reader(find_inputs(located(config), split), config, split)
    return [document.texts for document in reader.documents(Cursor(), {})]


def hugging_face(name: str, folder: Path, documents: list[tuple[str, ...]]) -> dict[str, Any]:
    """The certificate, and the same score computed by transformers from the exported folder."""
    recipe = load_recipe(str(folder / "recipe.toml"))
    assert recipe.model is not None
    out = folder / "hugging-face"
    shutil.rmtree(out, ignore_errors=True)
    certificate = clearhead("export", folder, out, "--to", "huggingface")
    there = score_there(
        out,
        documents,
        prepared_folder(name),
        task=recipe.data.task,
        beam=BEAM,
        tokenize=tokenizer_of_bleu(name),
        exact=name == "copy-task",
        end=recipe.data.document != "file",
        window=recipe.model.max_length,
    )
    lines = certificate.replace(str(out), f"{name}-hf").splitlines()
    return {"certificate": lines, **there}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["train", "write", "pages"])
    parser.add_argument("recipe", nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--label", help="of the result, where it is not the recipe as it stands")
    arguments, overrides = parser.parse_known_args()
    label = arguments.label or arguments.recipe
    match arguments.what:
        case "train":
            train(arguments.recipe, label, arguments.seed, overrides)
        case "write":
            write(arguments.recipe, label, arguments.seeds, overrides)
        case _:
            write_pages()


if __name__ == "__main__":
    main()
