"""How often an interval covers the truth: the kinds of interval that a study could use, on
simulated runs.

    python -m benchmarks.intervals          # a minute; benchmarks/results/intervals.json
    python -m benchmarks.intervals pages    # docs/*/studies.md, from that file

A simulated measure is the mean over seeds and sentences of

    truth + seed effect + sentence effect + effect of the sentence under that seed

with normal effects, or with effects that are skewed (exponential). Two cases: the seeds differ most
(a small model on a large test set), or the sentences do (a stable model on a small test set).
"""

import json
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from clearhead.studies.statistics import CONFIDENCE, N_BLOCKS, Estimate, Measurements, estimate
from tools.result import FOLDER, write_result

N_LINES = 200
CASES = {
    "seeds dominate": (1.0, 3.0, 3.0),
    "sentences dominate": (0.05, 10.0, 3.0),
    "both alike": (0.4, 5.7, 5.7),
}
"""Standard deviations of the effects of the seed, the sentence, and both; a sentence's effects are
divided by √N_LINES in the mean."""
SEEDS = (3, 5, 10)
ROOT = Path(__file__).parent.parent
PAGES = {language: ROOT / "docs" / language / "studies.md" for language in ("en", "zh")}
WORDS = {
    "en": (
        "| noise | interval | 3 seeds | 5 seeds | 10 seeds |",
        {
            "normal": "",
            "skewed": ", skewed",
            **{name: name for name in CASES},
            "percentile bootstrap of seeds": "percentile bootstrap of seeds",
            "t over seeds": "Student's, over seeds",
            "t over seeds and sentences": "**Student's, over seeds and sentences**",
        },
    ),
    "zh": (
        "| 噪声 | 区间 | 3 个种子 | 5 个种子 | 10 个种子 |",
        {
            "normal": "",
            "skewed": "，偏态",
            "seeds dominate": "种子为主",
            "sentences dominate": "句子为主",
            "both alike": "两者相当",
            "percentile bootstrap of seeds": "对种子做百分位自助法",
            "t over seeds": "仅对种子的 t 区间",
            "t over seeds and sentences": "**对种子和句子的 t 区间**",
        },
    ),
}


def simulate(
    rng: np.random.Generator, n_seeds: int, case: str, *, skewed: bool = False
) -> Measurements:
    """Runs whose true mean is 0."""
    seed_spread, line_spread, both_spread = CASES[case]

    def draw(*shape: int) -> Any:
        return rng.exponential(size=shape) - 1 if skewed else rng.normal(size=shape)

    x = seed_spread * draw(n_seeds, 1) + line_spread * draw(1, N_LINES)
    x = x + both_spread * draw(n_seeds, N_LINES)
    inside = x.reshape(n_seeds, -1, N_BLOCKS).sum(axis=1)
    left_out = (x.sum(axis=1, keepdims=True) - inside) / (N_LINES - N_LINES // N_BLOCKS)
    return Measurements(x.mean(axis=1).tolist(), left_out.tolist())


def over_seeds_and_sentences(figure: Measurements) -> tuple[float, float]:
    """What a study uses."""
    return _ends(estimate(figure))


def over_seeds(figure: Measurements) -> tuple[float, float]:
    """Student's interval over seeds alone."""
    return _ends(estimate(figure._replace(left_out=None)))


def bootstrap_of_seeds(figure: Measurements) -> tuple[float, float]:
    """Percentiles of means over resampled seeds."""
    rng = np.random.default_rng(0)
    values = np.asarray(figure.values)
    means = values[rng.integers(0, len(values), (500, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _ends(found: Estimate) -> tuple[float, float]:
    assert found.half is not None
    return found.value - found.half, found.value + found.half


KINDS = {
    "percentile bootstrap of seeds": bootstrap_of_seeds,
    "t over seeds": over_seeds,
    "t over seeds and sentences": over_seeds_and_sentences,
}


def coverage(
    kind: Callable[[Measurements], tuple[float, float]],
    n_seeds: int,
    case: str,
    *,
    n_draws: int = 2000,
    skewed: bool = False,
) -> float:
    """The share of simulated studies whose interval holds the truth."""
    rng = np.random.default_rng([n_seeds, list(CASES).index(case), skewed])
    intervals = [kind(simulate(rng, n_seeds, case, skewed=skewed)) for _ in range(n_draws)]
    return float(np.mean([low <= 0 <= high for low, high in intervals]))


def with_coverage(text: str, language: str) -> str:
    """A page with the table that the result file makes."""
    rows = json.loads((FOLDER / "intervals.json").read_text(encoding="utf-8"))["rows"]
    heads, names = WORDS[language]
    lines = [heads, "|---" * (heads.count("|") - 1) + "|"]
    kinds = product(CASES, ("normal", "skewed"), KINDS)
    for case, effects, interval in kinds:
        same = [
            row
            for row in rows
            if (row["case"], row["effects"], row["interval"]) == (case, effects, interval)
        ]
        shown = " | ".join(f"{row['coverage']:.1%}" for row in same)
        lines.append(f"| {names[case]}{names[effects]} | {names[interval]} | {shown} |")
    before, rest = text.split("<!-- coverage -->\n")
    after = rest.split("<!-- end of coverage -->")[1]
    table = "\n".join(lines)
    return f"{before}<!-- coverage -->\n{table}\n<!-- end of coverage -->{after}"


def main() -> None:
    if sys.argv[1:] == ["pages"]:
        for language, path in PAGES.items():
            path.write_text(with_coverage(path.read_text("utf-8"), language), encoding="utf-8")
        return
    found = [
        {
            "interval": name,
            "case": case,
            "effects": "skewed" if skewed else "normal",
            "seeds": n_seeds,
            "coverage": coverage(kind, n_seeds, case, skewed=skewed),
        }
        for name, kind in KINDS.items()
        for case in CASES
        for skewed in (False, True)
        for n_seeds in SEEDS
    ]
    for row in found:
        print(*row.values(), sep="\t")
    print(write_result("intervals", {"nominal": CONFIDENCE, "rows": found}))


if __name__ == "__main__":
    main()
