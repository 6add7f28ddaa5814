"""Compares the planner's memory of a rank with what `python -m benchmarks.rank_memory` measured,
and writes the tables of docs/*/scale.md that show both.

    python -m tools.rank_memory_page      # writes them into both languages' pages
"""

import json
import re
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

from clearhead.config import ModelConfig, TrainConfig
from clearhead.scale.memory import RankLayout, rank_memory
from tools.result import FOLDER

_ADJUSTED = ModelConfig(
    family="decoder",
    vocab_size=12_000,
    d_model=512,
    n_layers=8,
    n_heads=8,
    d_ff=2048,
    positions="rotary",
    norm="rms",
    feed_forward="swiglu",
    bias=False,
    max_length=256,
    p_dropout=0.0,
)
MODELS = {
    # The moments at which tensors are gathered and reduced were found with the first result; the
    # second is only compared.
    "llama-like, tied": _ADJUSTED,
    "gpt-like, untied": replace(
        _ADJUSTED,
        vocab_size=7_000,
        d_model=384,
        n_layers=11,
        n_heads=6,
        d_ff=1536,
        positions="learned",
        norm="layer",
        feed_forward="gelu",
        bias=True,
        max_length=192,
        tie_output=False,
    ),
}
ROWS = 2
LAYOUTS = {
    "1 rank": RankLayout(rows=ROWS),
    "2 ranks": RankLayout(shard=2, rows=ROWS),
    "4 ranks": RankLayout(shard=4, rows=ROWS),
    "tensor 2": RankLayout(tensor=2, rows=ROWS),
    "2 × tensor 2": RankLayout(shard=2, tensor=2, rows=ROWS),
}
DIFFERENCES = tuple(combinations(list(LAYOUTS)[:3], 2))
RESULT = FOLDER / "rank_memory.json"


def config(layout: RankLayout, recompute: bool) -> TrainConfig:
    return TrainConfig(
        parallel="fsdp" if layout.sharded else "ddp",
        tensor_parallel=layout.tensor,
        recompute=recompute,
    )


def case(recompute: bool, layout: str) -> str:
    return f"{layout}, {'with' if recompute else 'without'} recompute"


def planned(name: str, layout: str, recompute: bool) -> float:
    """Return the planned megabytes at the peak."""
    model = MODELS[name]
    asked = replace(LAYOUTS[layout], recompute=recompute)
    train = config(asked, recompute)
    return rank_memory(model, train, asked, length=model.max_length).peak / 1e6


def compared(name: str, measured: dict[str, float]) -> dict[str, dict[str, float]]:
    """Return each case, and each difference between numbers of ranks, with the planner's figure."""
    rows: dict[str, dict[str, float]] = {}
    for recompute in (False, True):
        sizes = {
            layout: (measured[case(recompute, layout)], planned(name, layout, recompute))
            for layout in LAYOUTS
        }
        for layout, size in sizes.items():
            rows[case(recompute, layout)] = _row(*size)
        for few, many in DIFFERENCES:
            drops = [a - b for a, b in zip(sizes[few], sizes[many])]
            rows[case(recompute, f"from {few} to {many}")] = _row(*drops)
    return rows


def _row(measured: float, planned: float) -> dict[str, float]:
    return {
        "measured_mb": round(measured, 1),
        "planned_mb": round(planned, 1),
        "error": round(planned / measured - 1, 4),
    }


DOCS = Path(__file__).parent.parent / "docs"
PAGES = {language: DOCS / language / "scale.md" for language in ("en", "zh")}
TABLES = re.compile(r"(?<=<!-- rank memory -->\n).*?(?=<!-- end of rank memory -->)", flags=re.S)
WORDS = {  # in Chinese
    "llama-like, tied": "类 Llama，共享嵌入表",
    "gpt-like, untied": "类 GPT，不共享嵌入表",
    "model": "模型",
    "recompute": "重算",
    "no": "否",
    "yes": "是",
    "1 rank": "1 个进程",
    "2 ranks": "2 个进程",
    "4 ranks": "4 个进程",
    "tensor 2": "张量并行 2",
    "2 × tensor 2": "2 × 张量并行 2",
}


def tables(language: str) -> str:
    """Return the tables: peaks by layout, and then the differences between numbers of ranks. Each
    row has the measurement and the error of the plan."""

    def word(english: str) -> str:
        return WORDS[english] if language == "zh" else english

    measured = json.loads(RESULT.read_text(encoding="utf-8"))["measured_mb"]
    found = {name: compared(name, measured[name]) for name in MODELS}
    # A heading, and the case that stands below it.
    peaks = {word(layout): layout for layout in LAYOUTS}
    drops = {f"{word(few)} → {word(many)}": f"from {few} to {many}" for few, many in DIFFERENCES}
    texts: list[str] = []
    for columns in (peaks, drops):
        rows = [[word("model"), word("recompute"), *columns]]
        rows.append(["---"] * len(rows[0]))
        for name, recompute in product(MODELS, (False, True)):
            cells = [found[name][case(recompute, each)] for each in columns.values()]
            shown = [f"{each['measured_mb']:.1f} ({each['error']:+.1%})" for each in cells]
            rows.append([word(name), word("yes" if recompute else "no"), *shown])
        texts.append("".join(f"| {' | '.join(row)} |\n" for row in rows))
    return "\n".join(texts)


def main() -> None:
    for language, path in PAGES.items():
        page = path.read_text(encoding="utf-8")
        assert TABLES.search(page), f"{path} has lost its markers"
        path.write_text(TABLES.sub(lambda _: tables(language), page), encoding="utf-8")  # noqa: B023


if __name__ == "__main__":
    main()
