"""Writes results/*.md and the tables of docs/*/comparison.md and both READMEs, from the files that
benchmarks.recipes wrote."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from clearhead.config import load_recipe
from clearhead.training.changes import recipe_facts

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
TABLE = re.compile(r"(?<=<!-- results -->\n).*?(?=<!-- end of results -->)", flags=re.S)
HEADINGS = (
    ("recipe", "parameters", "trained (core minutes)", "result"),
    ("配方", "参数量", "训练（核分钟）", "结果"),
)
# A page, and its rows if it does not show all: an encoder-decoder, a decoder, an encoder.
PAGES: dict[str, dict[str, str]] = {
    "README.md": {
        "multi30k-de-en": "translating German captions",
        "shakespeare-char": "writing Shakespeare, letter by letter",
        "movie-reviews": "telling praise from criticism",
    },
    "README.zh-CN.md": {
        "tatoeba-en-zh": "英译中",
        "hongloumeng": "逐字续写《红楼梦》",
        "movie-reviews": "判断影评褒贬",
    },
    "docs/en/comparison.md": {},
    "docs/zh/comparison.md": {},
}
PHRASES = {  # of a score
    "BLEU": ("{} BLEU", "{} BLEU"),
    "BLEU, lower-cased": ("{} BLEU (lower-cased)", "{} BLEU（小写）"),
    "BLEU, lower-cased, Moses": (
        "{} BLEU (lower-cased, Moses's tokens)",
        "{} BLEU（小写，Moses 词元）",
    ),
    "chrF++": ("{} chrF++", "{} chrF++"),
    "accuracy": ("{} of the texts right", "{} 的文本判断正确"),
    "exact": ("{} of the lines exact", "{} 的行完全正确"),
    "bits_per_byte": ("{} bits per byte", "{} 比特/字节"),
    "perplexity_per_word": ("{} perplexity per word", "单词困惑度 {}"),
    "perplexity_per_character": ("{} perplexity per character", "字符困惑度 {}"),
    "perplexity_per_token": ("{} perplexity per token", "词元困惑度 {}"),
    "loss": ("{} loss", "损失 {}"),
    "validation_loss": ("{} validation loss", "验证损失 {}"),
}
SEEDS = (" ({} seeds)", "（{} 个种子）")
SHOWN = ("BLEU", "chrF++", "accuracy", "exact", "bits_per_byte", "perplexity_per_word",
         "perplexity_per_character", "loss")  # fmt: skip
SHOWN_OF = {
    "multi30k-en-de": ("BLEU", "BLEU, lower-cased"),  # what others have published for it
    "shakespeare-char": ("bits_per_byte", "validation_loss"),
}

PUBLISHED = {  # by others, for the same test set
    "multi30k-de-en": "36.5 BLEU, lower-cased and tokenised (9.0 M parameters, "
    "[pytorch-seq2seq](https://github.com/bentrevett/pytorch-seq2seq)) and 37.4 "
    "([nmt-multi30k-pytorch](https://github.com/silvery107/nmt-multi30k-pytorch)).",
    "multi30k-en-de": "41.02 BLEU, lower-cased and tokenised, of 2.6 M parameters after 8,000 "
    "updates of 8,192 tokens ([Revisit-MMT](https://github.com/LividWo/Revisit-MMT)).",
    "shakespeare-char": "a validation loss of 1.88 after the same 2,000 steps "
    "([nanoGPT](https://github.com/karpathy/nanoGPT)).",
    "shakespeare-char-baby": "a validation loss of 1.4697, with dropout, after 5,000 steps of "
    "16,384 tokens on a GPU ([nanoGPT](https://github.com/karpathy/nanoGPT)).",
    "hongloumeng": "a validation loss of 4.78 nats a character at step 5,000, by 12.3 M parameters "
    "that had learnt the text by heart (training loss 0.72) "
    "([baby_gpt_hongloumeng](https://github.com/ybdesire/baby_gpt_hongloumeng)).",
    "wikitext-2": "65.6 perplexity per word, by an LSTM that was trained to the last step "
    "([AWD-LSTM](https://github.com/salesforce/awd-lstm-lm)).",
}
CREDITS = {  # whose sentences the samples quote
    "tatoeba-en-zh": "Sentences: [Tatoeba](https://tatoeba.org), CC BY 2.0 FR.",
    "python-docs-en-zh": "Paragraphs: the documentation of Python (PSF licence) and its "
    "[Chinese translation](https://github.com/python/python-docs-zh-cn) (CC0).",
}


def read_results() -> list[dict[str, Any]]:
    found = sorted(RESULTS.glob("*.json"), key=lambda path: path.stem)
    return [json.loads(path.read_text("utf-8")) for path in found]


def same_recipe(config: dict[str, Any], name: str, overrides: list[str]) -> bool:
    """Tell whether a run's configuration is the recipe that ships now, with these options. Seeds
    may differ."""
    keys = [(key.removeprefix("--"), value) for key, value in zip(*[iter(overrides)] * 2)]
    recipe = load_recipe(name, keys)
    shipped, config = recipe_facts(recipe), json.loads(json.dumps(config))
    # A key that is newer had its default value then.
    for section in ("data", "batches", "model", "train"):
        defaults = {each.name: each.default for each in fields(type(getattr(recipe, section)))}
        new = shipped[section].keys() - config[section].keys()
        config[section] |= {key: json.loads(json.dumps(defaults[key])) for key in new}
    for facts in (config, shipped):
        for section in ("batches", "train"):
            facts[section]["seed"] = None
    return config == json.loads(json.dumps(shipped))


def number(name: str, value: float) -> str:
    if name in ("accuracy", "exact"):
        return f"{100 * value:.1f}%"
    return (
        f"{value:.3f}" if name in ("bits_per_byte", "loss", "validation_loss") else f"{value:.1f}"
    )


def score(result: dict[str, Any], name: str, chinese: bool) -> str:
    """Return the mean over the seeds, and their spread if there are several."""
    found = result["scores"][name]
    told = number(name, found["mean"])
    if found["spread"] is not None:
        told += f" ± {number(name, found['spread'])}"
    return PHRASES[name][chinese].format(told)


def table(results: list[dict[str, Any]], page: str) -> str:
    chinese = "zh" in page
    by_label = {result["label"]: result for result in results}
    up = "../" * page.count("/")
    lines = [f"| {' | '.join(HEADINGS[chinese])} |", "|---|---|---|---|"]
    for label in PAGES[page] or by_label:
        result = by_label[label]
        shown = SHOWN_OF.get(result["recipe"], SHOWN)
        shown = [name for name in shown if name in result["scores"]][:2]
        minutes = sum(run["core_minutes"] for run in result["runs"]) / len(result["runs"])
        told = ("，" if chinese else ", ").join(score(result, name, chinese) for name in shown)
        told += SEEDS[chinese].format(len(result["runs"])) if len(result["runs"]) > 1 else ""
        link = f"[{label}]({up}results/{label}.md)"
        link += f"{'：' if chinese else ': '}{PAGES[page][label]}" if label in PAGES[page] else ""
        lines.append(f"| {link} | {result['parameters']:,} | {minutes:.0f} | {told} |")
    return "\n".join(lines) + "\n"


def with_table(text: str, results: list[dict[str, Any]], page: str) -> str:
    new, n = TABLE.subn(table(results, page).replace("\\", r"\\"), text)
    assert n == 1, f"{page} has lost its markers"
    return new


def page(result: dict[str, Any]) -> str:
    """Write everything about one recipe, for people."""
    label, machine = result["label"], result["machine"]
    lines = [
        f"# {label}",
        "",
        f"Measured {result['date']} at commit {result['commit']} on {machine['cores']} cores "
        f"({machine['processor']}; Python {machine['python']}, torch {machine['torch']}), by "
        f"`{result['command']}`, which types:",
        "",
        "```bash",
        *result["commands"],
        "```",
        "",
        f"{result['parameters']:,} parameters. Data: {len(result['data']['inputs'])} files, "
        f"fingerprint `{result['data']['fingerprint'][:16]}`. The whole configuration is in "
        f"[{label}.json]({label}.json).",
        "",
        "## Scores",
        "",
    ]
    names = list(result["scores"])
    lines += [
        f"| seed | steps | epochs | tokens | core minutes | memory | {' | '.join(names)} |",
        "|---|---|---|---|---|---|" + "---|" * len(names),
    ]
    for run in result["runs"]:
        cells = [
            str(run["seed"]), f"{run['steps']:,}", str(run["epochs"]), f"{run['tokens']:,}",
            f"{run['core_minutes']:.0f}", f"{run['peak_memory_mb']:,} MB",
        ]  # fmt: skip
        cells += [interval(name, run["scores"][name]) for name in names]
        lines.append(f"| {' | '.join(cells)} |")
    signatures = {
        f"{name}: `{found['signature']}`"
        for run in result["runs"]
        for name, found in run["scores"].items()
        if "signature" in found
    }
    lines += ["", *sorted(signatures)] if signatures else []
    lines += ["", f"Published by others: {PUBLISHED[label]}"] if label in PUBLISHED else []
    for run in result["runs"]:
        lines += ["", over_fitting(run) + stopped(run, result["config"])]
    lines += ["", f"![validation loss]({label}.png)", "", "## In Hugging Face", ""]
    lines += ["```text", *result["hugging_face"]["certificate"], "```", ""]
    for name, value in result["hugging_face"]["scores"].items():
        mine = result["runs"][0]["scores"][name]["value"]
        seed, there = result["runs"][0]["seed"], PHRASES[name][False].format(f"{value:.4f}")
        lines += [f"Seed {seed} there: {there}; here: {mine:.4f}.", ""]
    lines += sample_lines(result["samples"])
    lines += ["", CREDITS[label]] if label in CREDITS else []
    return "\n".join(lines).rstrip() + "\n"


def over_fitting(run: dict[str, Any]) -> str:
    """Say from where on more training makes the model worse, or that it still improves."""
    step, loss = run["best_validation"]
    last_step, last_loss = run["validations"][-1]
    told = f"Seed {run['seed']}: best validation loss {loss:.4f} at step {step:,}"
    if step == last_step:
        return f"{told}, the last one: it does not over-fit yet."
    return f"{told}; at the end, step {last_step:,}, it was higher, {last_loss:.4f}."


def stopped(run: dict[str, Any], config: dict[str, Any]) -> str:
    """Describe a run that somebody ended before its recipe would have ended it."""
    steps, last = config["train"]["steps"], run["steps"]
    return f" It was stopped by hand at step {last:,} of {steps:,}." if last < steps else ""


def sample_lines(samples: list[dict[str, str]]) -> list[str]:
    if not samples:
        return []
    if "prompt" in samples[0]:
        heading = f"## Ten continuations of “{samples[0]['prompt']}”, with ten seeds in a row"
        texts = [sample["written"].strip().replace("\n", " ⏎ ") for sample in samples]
        return [heading, "", "```text", *texts, "```"]
    names = ["translation" if name == "written" else name for name in samples[0]]
    rows = [" | ".join(text.replace("|", "\\|") for text in each.values()) for each in samples]
    return [
        "## Ten samples of the test set, chosen at random (seeded)",
        "",
        f"| {' | '.join(names)} |",
        "|---" * len(names) + "|",
        *(f"| {row} |" for row in rows),
    ]


def interval(name: str, found: dict[str, Any]) -> str:
    told = number(name, found["value"])
    if "low" in found:
        return f"{told} ({number(name, found['low'])} … {number(name, found['high'])})"
    half = found.get("half_interval")
    return told if half is None else f"{told} ± {half:.1f}"


def write_pages() -> None:
    results = read_results()
    for result in results:
        (RESULTS / f"{result['label']}.md").write_text(page(result), encoding="utf-8")
    for name in PAGES:
        path = ROOT / name
        path.write_text(with_table(path.read_text("utf-8"), results, name), encoding="utf-8")
