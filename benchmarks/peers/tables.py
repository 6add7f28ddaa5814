"""The table of the peers in both READMEs, from results/peers.jsonl."""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.result import FOLDER

ROOT = Path(__file__).parent.parent.parent
RESULT = FOLDER / "peers.jsonl"
TABLE = re.compile(r"(?<=<!-- peers -->\n).*?(?=<!-- end of peers -->)", flags=re.S)
HEADINGS = {
    "README.md": ("task", "tool", "settings", "result"),
    "README.zh-CN.md": ("任务", "工具", "设置", "结果"),
}
TOOLS = {
    "nanogpt": "nanoGPT",
    "joeynmt": "JoeyNMT",
    "eole": "Eole",
    "hugging_face": "Hugging Face `Seq2SeqTrainer`",
    "clearhead": "**clearhead**",
}
SETTINGS = {  # in the order of HEADINGS
    "nanogpt-authors": ("its README's for a CPU", "其 README 中的 CPU 设置"),
    "nanogpt-ours": ("the same, our learning rate", "同上，用我们的学习率"),
    "joeynmt-authors": ("its authors'", "其作者的设置"),
    "joeynmt-ours": ("our hyper-parameters", "我们的超参数"),
    "eole-authors": ("its authors'", "其作者的设置"),
    "eole-ours": ("our hyper-parameters", "我们的超参数"),
    "hugging_face-authors": ("its authors'", "其作者的设置"),
    "hugging_face-ours": ("our hyper-parameters", "我们的超参数"),
    "clearhead-ours": ("the recipe", "配方"),
    "multi30k-de-en clearhead-ours": (
        "the recipe, average of checkpoints in any case",
        "配方，一律取检查点的平均",
    ),
    "clearhead-last": ("the recipe, its last weights", "配方，只用最后的权重"),
    "clearhead-initial": (
        "the recipe, its last weights, larger initial ones",
        "配方，只用最后的权重，初始权重更大",
    ),
    "clearhead-post": (
        "the recipe, its last weights, post-norm",
        "配方，只用最后的权重，后置归一化",
    ),
    "clearhead-authors": ("the recipe, nanoGPT's learning rate", "配方，用 nanoGPT 的学习率"),
}
TASKS = {
    "shakespeare-char": ("shakespeare-char: validation loss", "shakespeare-char：验证损失"),
    "multi30k-de-en": ("Multi30k de-en: test BLEU", "Multi30k 德英：测试集 BLEU"),
}
COMMA = (", ", "、")
AFTER = ("{value} after {time}", "{time}后为 {value}")
MINUTES = ("{} core minutes", "{} 核分钟")
SECONDS = ("{} core seconds", "{} 核秒")


def read_lines(task: str) -> list[dict[str, Any]]:
    if not RESULT.exists():
        return []
    lines = RESULT.read_text(encoding="utf-8").split("\n")[:-1]  # the last may be a part
    return [line for each in lines if (line := json.loads(each))["task"] == task]


def table(readme: str) -> str:
    """Rows are runs, in the order in which they were finished."""
    i = list(HEADINGS).index(readme)
    rows = [HEADINGS[readme], ("---",) * 4]
    for task, title in TASKS.items():
        lines = read_lines(task)
        for run in dict.fromkeys(line["run"] for line in lines):
            mine = [line for line in lines if line["run"] == run]
            tool = f"{TOOLS[run.rpartition('-')[0]]} {mine[0]['version']}".strip()
            settings = SETTINGS.get(f"{task} {run}", SETTINGS[run])
            rows.append((title[i], tool, settings[i], _result(mine, i)))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _result(lines: list[dict[str, Any]], i: int) -> str:
    """Of one run: the last loss, or the scores at each mark."""
    if "points" in lines[0]:
        last = lines[0]["points"][-1]
        value, time = f"{last['loss']:.3f}", SECONDS[i].format(round(last["core_seconds"]))
    else:
        ordered = sorted(lines, key=lambda line: line["minutes"])
        value = COMMA[i].join(f"{line['BLEU']:.1f}" for line in ordered)
        time = MINUTES[i].format(COMMA[i].join(f"{line['minutes']:g}" for line in ordered))
    return AFTER[i].format(value=value, time=time)


def write_tables() -> None:
    for readme in HEADINGS:
        path = ROOT / readme
        text = path.read_text(encoding="utf-8")
        assert TABLE.search(text), f"{readme} has no place for the table of the peers"
        path.write_text(TABLE.sub(lambda _: table(readme), text), encoding="utf-8")  # noqa: B023
