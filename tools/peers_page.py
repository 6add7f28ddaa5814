"""Writes the tables of the other tools in docs/*/comparison.md, from
benchmarks/results/peers.jsonl."""

import json
import re
from pathlib import Path
from typing import Any

from tools.result import FOLDER

DOCS = Path(__file__).parent.parent / "docs"
PAGES = {language: DOCS / language / "comparison.md" for language in ("en", "zh")}
RESULT = FOLDER / "peers.jsonl"
TASKS = ("multi30k-de-en", "shakespeare-char")
MARKS = (10, 20, 40)
HEADINGS = {
    "multi30k-de-en": {
        "en": ("tool", "settings", *(f"{minutes} core minutes" for minutes in MARKS)),
        "zh": ("工具", "设置", *(f"{minutes} 核分钟" for minutes in MARKS)),
    },
    "shakespeare-char": {
        "en": ("tool", "settings", "parameters", "validation loss", "core seconds"),
        "zh": ("工具", "设置", "参数量", "验证损失", "核秒"),
    },
}
TOOLS = {
    "nanogpt": "nanoGPT",
    "joeynmt": "JoeyNMT",
    "eole": "Eole",
    "hugging_face": "Hugging Face `Seq2SeqTrainer`",
    "clearhead": "**clearhead**",
}
SETTINGS = {  # of the runs of each task, in the order of the rows: English, Chinese
    "multi30k-de-en": {
        "clearhead-last": ("our hyper-parameters, last weights", "我们的超参数，最后的权重"),
        "clearhead-post": ("the same, post-norm", "同上，后置归一化"),
        "clearhead-initial": ("the same, larger initial weights", "同上，初始权重更大"),
        "clearhead-ours": (
            "the same, always the average of checkpoints",
            "同上，一律取检查点的平均",
        ),
        "hugging_face-ours": ("our hyper-parameters", "我们的超参数"),
        "eole-ours": ("our hyper-parameters", "我们的超参数"),
        "joeynmt-ours": ("our hyper-parameters", "我们的超参数"),
        "hugging_face-recipe": ("today's recipe, with AdamW", "现在的配方，用 AdamW"),
        "eole-recipe": ("today's recipe, with AdamW", "现在的配方，用 AdamW"),
        "eole-authors": ("its authors'", "作者的设置"),
        "joeynmt-authors": ("its authors'", "作者的设置"),
        "hugging_face-authors": ("its authors'", "作者的设置"),
    },
    "shakespeare-char": {
        "nanogpt-authors": ("its README's, for a CPU", "其 README 中的 CPU 设置"),
        "clearhead-authors": ("the recipe, nanoGPT's learning rate", "配方，nanoGPT 的学习率"),
        "nanogpt-ours": ("its README's, our learning rate", "其 README 的设置，我们的学习率"),
        "clearhead-ours": ("the recipe", "配方"),
    },
}
CELL = {"en": "{BLEU:.1f} ({steps:,})", "zh": "{BLEU:.1f}（{steps:,}）"}


def place(task: str) -> re.Pattern[str]:
    """Return the place of a task's table on a page."""
    return re.compile(rf"(?<=<!-- {task} -->\n).*?(?=<!-- end of {task} -->)", flags=re.S)


def read_lines(task: str) -> list[dict[str, Any]]:
    if not RESULT.exists():
        return []
    lines = RESULT.read_text(encoding="utf-8").split("\n")[:-1]  # the last may be a part
    return [line for each in lines if (line := json.loads(each))["task"] == task]


def table(task: str, language: str) -> str:
    """Make a table, with a row for each run."""
    rows = [HEADINGS[task][language], ("---",) * len(HEADINGS[task][language])]
    lines = read_lines(task)
    for run, settings in SETTINGS[task].items():
        of_run = [line for line in lines if line["run"] == run]
        if of_run:
            tool = f"{TOOLS[run.rpartition('-')[0]]} {of_run[0]['version']}".strip()
            rows.append((tool, settings[language == "zh"], *_result(of_run, language)))
    unnamed = {line["run"] for line in lines} - SETTINGS[task].keys()
    assert not unnamed, f"{task}: say in SETTINGS what these runs are: {sorted(unnamed)}"
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _result(lines: list[dict[str, Any]], language: str) -> list[str]:
    """Return the results of one run: its size, last loss and time, or the score and the updates at
    each mark."""
    if "points" in lines[0]:
        last = lines[0]["points"][-1]
        return [f"{last['parameters']:,}", f"{last['loss']:.3f}", f"{last['core_seconds']:.0f}"]
    reached = {line["minutes"]: CELL[language].format_map(line) for line in lines}
    return [reached.get(minutes, "") for minutes in MARKS]


def with_tables(page: str, language: str) -> str:
    """Return the page with the tables that the result file gives."""
    for task in TASKS:
        page, n = place(task).subn(table(task, language).replace("\\", r"\\"), page)
        assert n == 1, f"docs/{language}/comparison.md has no place for the table of {task}"
    return page


def write_tables() -> None:
    for language, path in PAGES.items():
        page = path.read_text(encoding="utf-8")
        path.write_text(with_tables(page, language), encoding="utf-8")
