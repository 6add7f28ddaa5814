"""A study as somebody might send it, for `tests/fuzz/cases.py`: its file, and its folder with
results, some of which are only in the folders of their runs."""

import random
from collections.abc import Callable
from pathlib import Path

from clearhead.api.study_worker import RESULT, carry_out
from clearhead.api.studying import study
from clearhead.studies.result_lines import RESULTS, add_line, as_text

Change = Callable[[Path, random.Random], str]
"""Changes something in a file, and says what."""
NOTED = 2
"""Results that the study itself has noted; the others it will find."""
RECIPE = """
[data]
task = "pairs"
format = "parallel"
train = ["{text}", "{text}"]
valid = ["{text}", "{text}"]
test = ["{text}", "{text}"]
tokenizer = "character"
[batches]
batch_tokens = 256
[model]
family = "encoder-decoder"
d_model = 8
n_layers = 1
n_heads = 2
d_ff = 12
max_length = 128
[train]
steps = 2
warmup_steps = 1
validate_every = 2
"""
STUDY = """
title = {en = "a study", zh = "研究"}
question = "what is d_ff worth?"
beam = 1
recipe = "pairs.toml"
seeds = [1, 2]
measures = ["loss", "gradients_at_start", "gradients_at_end"]
baseline = "base"
[budget]
steps = 2
[arms.base]
title = {en = "as it is", zh = "原样"}
[arms.wide]
model.d_ff = 24
"""


def build_study(place: Path) -> None:
    """What an honest sender has: each run is trained and measured, in this process."""
    (place / "pairs.toml").write_text(RECIPE.format(text=place / "text.txt"), encoding="utf-8")
    (place / "study.toml").write_text(STUDY, encoding="utf-8")
    folder = place / "study"
    found = study(place / "study.toml", folder=folder)
    found.run(only_plan=True)
    (folder / "logs").mkdir()
    for number, job in enumerate(found._jobs(found._costs(lambda _: None))):
        line = carry_out(job.task)
        assert line is not None
        job.log.write_text("the words of a worker\n")
        (Path(job.task["folder"]) / RESULT).write_text(as_text(line), encoding="utf-8")
        if number < NOTED:
            add_line(folder / RESULTS, line)


def study_verbs(sent: Path) -> list[list[str]]:
    """What the receiver of a study does; whole runs would be processes."""
    where = [str(sent / "study.toml"), "--folder", str(sent / "study")]
    pages = ["--out", str(sent / "pages")]
    return [
        ["study", "show", *where],
        ["study", "page", *where, *pages],
        ["study", "run", *where, "--plan"],
    ]


def changed_study(
    sent: Path, draw: random.Random, change: Change, change_settings: Change
) -> tuple[str, str, list[str]]:
    """A kind of target (a study's file is as good as a recipe), what was changed, and a verb."""
    folder, verb = sent / "study", draw.choice(study_verbs(sent))
    if draw.random() < 0.15:
        return "recipe", f"{verb[1]}: {change_settings(sent / 'study.toml', draw)}", verb
    paths = sorted(folder.rglob("*"))
    read = [folder / RESULTS, folder / "costs.json", *sorted(folder.rglob(RESULT))]
    chosen = draw.choice(read if draw.random() < 0.7 else paths)
    return "study", f"{verb[1]}: {change(chosen, draw)}", verb
