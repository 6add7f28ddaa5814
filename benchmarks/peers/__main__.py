"""Compares clearhead with its peers, on one core each.

    python -m benchmarks.peers                            # every run that has no line yet
    python -m benchmarks.peers --only joeynmt-authors     # or some of them
    python -m benchmarks.peers --only eole-recipe --minutes 20   # its schedule ends at this mark
    python -m benchmarks.peers --only nanogpt-authors --nanogpt ~/nanoGPT   # a checkout of it
    python -m benchmarks.peers pages                      # the tables of docs/*/comparison.md

Translation (Multi30k de-en): test BLEU after 10, 20 and 40 minutes of processor time. Everything
that a training process does counts (reading, validating), nothing before it (installing, training a
tokenizer) and nothing after it (translating the test set). Each point is a line of
results/peers.jsonl; the same command does what is missing. A run that is killed starts anew, and
keeps the points that it has passed.

shakespeare-char: the loss on the whole validation split against processor seconds.
"""

import argparse
import gzip
import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import sacrebleu

from benchmarks.peers.environments import PINNED, ROOT, python_of, surroundings
from benchmarks.peers.marks import POINTS, name_of, read_points
from clearhead.config import load_recipe
from clearhead.environment import data_folder
from clearhead.studies.result_lines import add_line as append
from tools.peers_page import RESULT, read_lines, write_tables
from tools.result import circumstances

HERE = Path(__file__).parent
WORK = Path("runs/peers")
BEAM = 5
TEST = "test_2016_flickr"
TRANSLATION, CHARACTERS = "multi30k-de-en", "shakespeare-char"


class PeerRun(NamedTuple):
    """One run: whose, with which settings, on which task."""

    peer: str
    settings: str
    """authors: as its authors publish; ours: with our hyper-parameters of 0.3.0; recipe: with those
    of today, whose schedule ends at the last mark; others: see VARIANTS."""
    task: str

    @property
    def name(self) -> str:
        return f"{self.peer}-{self.settings}"

    @property
    def folder(self) -> Path:
        return WORK / self.task / self.name

    @property
    def version(self) -> str:
        """The one that is installed; of nanoGPT and clearhead there is only a commit."""
        first = PINNED.get(self.peer, [""])[0]
        return first.partition("==")[2]


RUNS = (
    PeerRun("nanogpt", "authors", CHARACTERS),
    PeerRun("clearhead", "ours", CHARACTERS),
    PeerRun("nanogpt", "ours", CHARACTERS),
    PeerRun("clearhead", "authors", CHARACTERS),
    PeerRun("joeynmt", "authors", TRANSLATION),
    PeerRun("hugging_face", "authors", TRANSLATION),
    PeerRun("clearhead", "ours", TRANSLATION),
    PeerRun("clearhead", "last", TRANSLATION),
    PeerRun("clearhead", "initial", TRANSLATION),
    PeerRun("clearhead", "post", TRANSLATION),
    PeerRun("joeynmt", "ours", TRANSLATION),
    PeerRun("hugging_face", "ours", TRANSLATION),
    PeerRun("eole", "authors", TRANSLATION),
    PeerRun("eole", "ours", TRANSLATION),
    PeerRun("hugging_face", "recipe", TRANSLATION),
    PeerRun("eole", "recipe", TRANSLATION),
)
COMPARABLE = [  # our recipe of 0.3.0: what the others have too, and a schedule without an end
    "model.init_std=0.02",
    "model.n_decoder_layers=null",
    "train.optimizer=adamw",
    "train.lr=0.003",
    "train.schedule=inverse-sqrt",
    "train.warmup_steps=1000",
    "train.publish=average",
    "train.keep=8",
]
LAST = "train.publish=last"  # and no average of checkpoints, which the others do not have
VARIANTS = {  # of our recipe, to find out what makes a difference
    "last": [LAST],
    "initial": [LAST, "model.init_std=0.088"],  # as large as JoeyNMT's
    "post": [LAST, "model.norm_placement=post"],  # as in Marian, which Hugging Face trains here
}
THEIR_RATE = ["train.lr=0.001"]  # what nanoGPT's settings have otherwise than our recipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", nargs="?", choices=["run", "pages"], default="run")
    names = sorted({run.name for run in RUNS})
    many = [run.name for run in RUNS if run.settings != "recipe"]
    parser.add_argument("--only", nargs="+", choices=names, default=many, metavar="NAME")
    parser.add_argument("--task", nargs="+", default=[TRANSLATION, CHARACTERS])
    parser.add_argument("--minutes", type=float, nargs="+", default=[10, 20, 40])
    parser.add_argument("--environments", type=Path, default=WORK / "environments")
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT")
    arguments = parser.parse_args()
    if arguments.action == "run":
        for run in RUNS:
            if run.name not in arguments.only or run.task not in arguments.task:
                continue
            run.folder.mkdir(parents=True, exist_ok=True)
            if run.task == TRANSLATION:
                translation(run, arguments.minutes, arguments.environments)
            else:
                characters(run, arguments.nanogpt, arguments.environments)
    write_tables()


def translation(run: PeerRun, minutes: list[float], environments: Path) -> None:
    known = [(each["run"], each.get("minutes")) for each in read_lines(TRANSLATION)]
    missing = [each for each in sorted(minutes) if (run.name, each) not in known]
    if not missing:
        return
    data = plain_files()
    train, translate = commands(run, data, environments)
    passed = [each for each in missing if name_of(each) in read_points(run.folder)]
    measure(run, passed, data, translate)  # of a run that was killed later
    if passed != missing:
        train(sorted(minutes))
        measure(run, [each for each in missing if each not in passed], data, translate)


def measure(
    run: PeerRun, minutes: list[float], data: Path, translate: Callable[[float], float]
) -> None:
    """Test BLEU with the weights of these points."""
    references = (data / f"{TEST}.en").read_text(encoding="utf-8").split("\n")[:-1]
    for each in minutes:
        point = read_points(run.folder)[name_of(each)]
        seconds = translate(each)
        text = (run.folder / f"{name_of(each)}.txt").read_text(encoding="utf-8")
        lines = text.split("\n")[:-1]
        assert len(lines) == len(references), f"{len(lines)} translations"
        metric = sacrebleu.metrics.BLEU()
        score = metric.corpus_score(lines, [references])
        found = {"BLEU": round(score.score, 2), "signature": str(metric.get_signature())}
        add_line(run, {"minutes": each, **point, **found, "translate_seconds": round(seconds, 1)})


def commands(
    run: PeerRun, data: Path, environments: Path
) -> tuple[Callable[[list[float]], None], Callable[[float], float]]:
    """How a run is trained up to its marks, and how the test set is translated with the weights of
    one of them, which returns its processor seconds."""
    if run.peer == "clearhead":
        return our_commands(run, data)
    python = python_of(run.peer, environments)
    ends = {"joeynmt": "yaml", "eole": "yaml", "hugging_face": "toml"}
    config = HERE / f"{run.name}.{ends[run.peer]}"
    given = ["--config", config, "--data", data, "--folder", run.folder]
    module = [python, "-m", f"benchmarks.peers.in_{run.peer}"]

    def train(minutes: list[float]) -> None:
        start_anew(run)
        call(run, [*module, "train", *given, "--minutes", *minutes], ROOT)

    def translate(minutes: float) -> float:
        return call(run, [*module, "translate", *given, "--minutes", minutes], ROOT)

    return train, translate


def start_anew(run: PeerRun) -> None:
    """Where a killed run could resume, what it did after its last mark would not count."""
    (run.folder / POINTS).unlink(missing_ok=True)
    shutil.rmtree(run.folder / "run", ignore_errors=True)


def our_commands(
    run: PeerRun, data: Path
) -> tuple[Callable[[list[float]], None], Callable[[float], float]]:
    prepared = prepare(run.task)
    given = ["--recipe", run.task, "--set", "train.steps=100000"]  # the marks end it
    given += [*COMPARABLE, *VARIANTS.get(run.settings, [])]
    given += ["--folder", run.folder, "--prepared", prepared]

    def train(minutes: list[float]) -> None:
        start_anew(run)
        while {name_of(each) for each in minutes} - read_points(run.folder).keys():
            module = [sys.executable, "-m", "benchmarks.peers.in_clearhead", "train"]
            call(run, [*module, *given, "--minutes", *minutes], ROOT, ROOT / "src")

    def translate(minutes: float) -> float:
        out = run.folder / f"{name_of(minutes)}.txt"
        files = ["--input", data / f"{TEST}.de", "--output", out]
        model = run.folder / f"run-{name_of(minutes)}"
        command = [sys.executable, "-m", "clearhead", "translate", model, *files, "--beam", BEAM]
        return call(run, command, ROOT, ROOT / "src")

    return train, translate


def characters(run: PeerRun, checkout: Path | None, environments: Path) -> None:
    if any(each["run"] == run.name for each in read_lines(CHARACTERS)):
        return
    if run.peer == "nanogpt":
        if checkout is None:
            sys.exit(f"{run.name} needs a checkout of nanoGPT: --nanogpt FOLDER")
        text = gzip.decompress((data_folder() / "tiny_shakespeare/input.txt.gz").read_bytes())
        (checkout / "data/shakespeare_char/input.txt").write_bytes(text)
        command = [python_of("nanogpt", environments), "-m", "benchmarks.peers.in_nanogpt"]
        given = ["--checkout", checkout, "--config", HERE / f"{run.name}.toml"]
        call(run, [*command, *given, "--folder", run.folder], ROOT)
    else:
        command = [sys.executable, "-m", "benchmarks.peers.in_clearhead", "validate"]
        given = ["--recipe", run.task, "--folder", run.folder, "--prepared", prepare(run.task)]
        given += ["--set", *THEIR_RATE] if run.settings == "authors" else []
        start_anew(run)
        call(run, [*command, *given], ROOT, ROOT / "src")
    points = json.loads((run.folder / POINTS).read_text(encoding="utf-8"))
    add_line(run, {"points": points})


def prepare(recipe: str) -> Path:
    """Our own data, which the time of a run does not count either."""
    place = WORK / "prepared" / recipe
    if not place.exists():
        command = [sys.executable, "-m", "clearhead", "prepare", recipe, "--out", str(place)]
        subprocess.run(command, check=True)
    return place


def plain_files() -> Path:
    """Multi30k as text, without the pairs that our recipe drops."""
    place, recipe = WORK / "data", load_recipe(TRANSLATION).data
    if not (place / f"{TEST}.en").exists():
        place.mkdir(parents=True, exist_ok=True)
        for split in ("train", "val", TEST):
            packed = [data_folder() / f"multi30k/{split}.{side}.gz" for side in ("de", "en")]
            sides = [gzip.decompress(file.read_bytes()).decode().split("\n") for file in packed]
            pairs = [each for each in zip(*sides) if all(each) and not set(each) & set(recipe.drop)]
            for side, lines in zip(("de", "en"), zip(*pairs)):
                text = "".join(line + "\n" for line in lines)
                (place / f"{split}.{side}").write_text(text, encoding="utf-8")
    return place.absolute()


def call(run: PeerRun, command: list[Any], *paths: Path) -> float:
    """Runs a child to its end, and returns its processor seconds. What it says is kept in the run's
    folder."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    log = run.folder / "log.txt"
    with log.open("a", encoding="utf-8") as file:
        words = list(map(str, command))
        child = subprocess.run(words, env=surroundings(*paths), stdout=file, stderr=file)
    if child.returncode != 0:
        sys.exit(f"{run.name} failed with code {child.returncode}; see {log}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def add_line(run: PeerRun, found: dict[str, Any]) -> None:
    line = {"task": run.task, "run": run.name, "version": run.version, **found, **circumstances()}
    append(RESULT, line)
    shown = {key: found[key] for key in ("minutes", "core_seconds", "BLEU") if key in found}
    print(run.task, run.name, shown or found["points"][-1], flush=True)


if __name__ == "__main__":
    main()
