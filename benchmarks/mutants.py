"""How much does the doctor notice? Changes one line of `parts` or `stacks` at a time, in a copy of
the source tree, and examines models built from it. It never sees our tests.

    python benchmarks/mutants.py --count 80

writes benchmarks/results/mutants.json (every mutant) and mutants.md (the figure, the survivors).
"""

import argparse
import ast
import hashlib
import json
import multiprocessing
import platform
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import clearhead
from clearhead.config import ModelConfig
from clearhead.doctor import examine

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SMALL: dict[str, Any] = {
    "vocab_size": 61,
    "d_model": 16,
    "n_layers": 2,
    "d_ff": 24,
    "max_length": 24,
}
# Between them they use every part, but for packed documents, which a doctor cannot know of.
CONFIGS = [
    ModelConfig(family="encoder-decoder", n_heads=2, attention="explicit", **SMALL),
    ModelConfig(
        family="decoder",
        n_heads=4,
        n_kv_heads=2,
        norm="rms",
        feed_forward="swiglu",
        positions="rotary",
        bias=False,
        tie_output=False,
        p_attention_dropout=0.1,
        **SMALL,
    ),
    ModelConfig(
        family="encoder",
        n_heads=2,
        norm_placement="post",
        feed_forward="gelu",
        positions="alibi",
        embedding_norm=True,
        n_segments=2,
        output_bias=True,
        **SMALL,
    ),
    ModelConfig(
        family="decoder", n_heads=2, positions="learned", first_position=2, pad_id=3, **SMALL
    ),
]
# Of no interest: what a model prints, and what only packed documents use.
SKIPPED = {"extra_repr", "same_document", "count_document_positions", "__getitem__"}
SECONDS = 120

Swap = dict[type, type]
ARITHMETIC: Swap = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
COMPARISONS: Swap = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Gt: ast.LtE, ast.GtE: ast.Lt}
COMPARISONS |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is}
NAMES = {
    "tril": "triu",
    "keys": "values",
    "transpose": "swapdims",
    "unsqueeze": "squeeze",
    "zeros": "ones",
    "ones": "zeros",
    "sin": "cos",
    "cos": "sin",
    "norm_1": "norm_2",
    "cumsum": "cumprod",
    "masked_fill": "masked_scatter",
    "repeat_interleave": "repeat",
    "sqrt": "log",
}


@dataclass(frozen=True)
class Mutant:
    file: str
    function: str
    line: int
    before: str
    after: str
    start: int
    end: int


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    result: str
    """caught, survived, or unchanged (it changes nothing that these models do)"""
    by: str | None = None
    """The case that the doctor named, or "crash"."""


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Every one-line change of one kind that a slip of the pen makes."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))

    def mutant(function: str, old: ast.expr, new: ast.expr) -> Mutant:
        assert old.end_lineno is not None and old.end_col_offset is not None
        begin = starts[old.lineno - 1] + old.col_offset
        end = starts[old.end_lineno - 1] + old.end_col_offset
        before = source.encode()[begin:end].decode()
        return Mutant(file, function, old.lineno, before, f"({ast.unparse(new)})", begin, end)

    for function in (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)):
        if function.name in SKIPPED:
            continue
        for statement in function.body:
            for node in _expressions(statement):
                for new in _changed(node):
                    yield mutant(function.name, node, new)


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """What a statement computes: no annotations, no error messages, no nested functions."""
    if isinstance(statement, ast.FunctionDef | ast.Raise | ast.Assert):
        return
    for name, value in ast.iter_fields(statement):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.stmt):
                yield from _expressions(child)
            elif isinstance(child, ast.expr) and name not in ("annotation", "returns", "targets"):
                yield from (n for n in ast.walk(child) if isinstance(n, ast.expr))


def _changed(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(op=op) if type(op) in ARITHMETIC:
            yield ast.BinOp(node.left, ARITHMETIC[type(op)](), node.right)
        case ast.BinOp(op=ast.BitAnd()):
            yield ast.BinOp(node.left, ast.BitOr(), node.right)
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            yield ast.Compare(node.left, [COMPARISONS[type(op)]()], node.comparators)
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            yield node.operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
            if value > 0:
                yield ast.Constant(value - 1)
        case ast.BoolOp(op=op):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), node.values)
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case ast.Attribute(attr=name) if name in NAMES:
            yield ast.Attribute(node.value, NAMES[name], ast.Load())
        case ast.Call(func=ast.Attribute(attr="dropout" | "norm"), args=[only]):
            yield only


def all_mutants() -> list[Mutant]:
    found: list[Mutant] = []
    for room in ("parts", "stacks"):
        for path in sorted((ROOT / "src" / "clearhead" / room).glob("*.py")):
            name = path.relative_to(ROOT / "src").as_posix()
            found += mutants_of(name, path.read_text(encoding="utf-8"))
    return found


def plant(mutant: Mutant, tree: Path) -> None:
    path = tree / mutant.file
    source = path.read_bytes()
    path.write_bytes(source[: mutant.start] + mutant.after.encode() + source[mutant.end :])


def fingerprint(model: Any, config: ModelConfig) -> str:
    """What the model does: plain, padded, in training, cached. Mutants that leave it as it is have
    changed nothing."""
    torch.manual_seed(0)
    tokens = torch.randint(4, 61, (3, 11))
    tokens[1, -3:] = tokens[2, :3] = config.pad_id or 0
    given = [tokens, tokens[:, :7]] if config.family == "encoder-decoder" else [tokens]
    model.eval()
    seen = [model(*given)]
    if config.family == "decoder":
        cache = model.new_cache(3)
        seen += [model(tokens[:, :8], cache=cache)]
        cache.reorder(torch.tensor([2, 0, 1]))
        seen += [model(tokens[:, 8:], cache=cache)]
    if config.family == "encoder-decoder":
        cache = model.new_cache(model.encode(tokens))
        seen += [model.decode(given[1], cache=cache)]
    model.train()
    torch.manual_seed(1)
    logits = model(*given)
    logits.logsumexp(dim=-1).sum().backward()
    seen += [logits, *(p.grad for p in model.parameters() if p.grad is not None)]
    digest = hashlib.sha256()
    for tensor in seen:
        digest.update(tensor.detach().numpy().tobytes())
    return digest.hexdigest()


def examine_tree(tree: str, queue: Any) -> None:
    """In a process of its own: models from this tree, under the doctor that is already loaded."""
    torch.set_num_threads(1)
    clearhead.__path__[:] = [f"{tree}/clearhead"]
    prints: list[str] = []
    by: str | None = None
    try:
        from clearhead.models import build_model

        for config in CONFIGS:
            model = build_model(config)
            prints.append(_print_of(model, config))
            if by is None:
                report = examine(build_model(config), quick=True)
                cases = [f.case for f in report.findings if f.severity != "note"]
                crashes = [o.check for o in report.outcomes if o.status == "could not run"]
                by = cases[0] if cases else f"crash in {crashes[0]}" if crashes else None
    except Exception as error:
        by = by or f"crash: {type(error).__name__}"
        prints.append("crash")
    queue.put((prints, by))


def _print_of(model: Any, config: ModelConfig) -> str:
    try:
        return fingerprint(model, config)
    except Exception:
        return "crash"


def try_tree(tree: Path) -> tuple[list[str], str | None]:
    context = multiprocessing.get_context("fork")  # the child need not import torch again
    queue = context.Queue()
    process = context.Process(target=examine_tree, args=(str(tree), queue))
    process.start()
    try:
        answer = queue.get(timeout=SECONDS)
    except Exception:
        answer = (["timeout"], "crash: timeout")
    process.join(5)
    if process.is_alive():
        process.terminate()
    return answer


def judge(mutant: Mutant, healthy: list[str]) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copytree(ROOT / "src" / "clearhead", tree / "clearhead")
        plant(mutant, tree)
        prints, by = try_tree(tree)
    if by is not None:
        return Verdict(mutant, "caught", by)
    return Verdict(mutant, "unchanged" if prints == healthy else "survived")


# Why a survivor survives, by file and function.
_OTHER_TABLE = (
    "another way of telling places apart: a model that has it is not wrong, only other than the "
    "published one; parity tests see it, a doctor without a reference cannot"
)
_NO_ROTATION = (
    "no longer a turn by the place's angle, so scores depend on more than the distance; places are "
    "still told apart, and no check asks for relative positions"
)
REASONS: dict[tuple[str, str], str] = {
    ("parts/positions.py", "sinusoid"): _OTHER_TABLE,
    ("parts/positions.py", "fill_tables"): _OTHER_TABLE,
    ("parts/positions.py", "_alibi_slopes"): _OTHER_TABLE,
    ("parts/positions.py", "forward"): _NO_ROTATION,
    ("parts/positions.py", "rotate"): _NO_ROTATION,
    ("parts/dropout.py", "forward"): (
        "a quarter of the elements is dropped too rarely: 0.075 for 0.1, which the dropout check "
        "saw too few draws to tell (since then it draws eight times as many)"
    ),
    ("parts/cache.py", "__init__"): (
        "shows only with ALiBi or padding in a cache, and the cache check uses neither"
    ),
    ("parts/cache.py", "extend"): (
        "shows only with padding in a cache, and the cache check uses none"
    ),
    ("parts/embeddings.py", "forward"): (
        "the vectors of pads are no longer zeros; every attention masks them, so nothing is lost"
    ),
    ("parts/attention.py", "forward"): (
        "where attention dropout is above 0, the kernel is chosen differently; the numbers are "
        "the same but for the random draws"
    ),
}


def write(verdicts: list[Verdict], seconds: float, seed: int) -> None:
    counts = Counter(verdict.result for verdict in verdicts)
    changed = counts["caught"] + counts["survived"]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    facts = {
        "command": f"python benchmarks/mutants.py --count {len(verdicts)} --seed {seed}",
        "commit": commit,
        "machine": f"{platform.machine()}, {platform.python_version()}, torch {torch.__version__}",
        "date": time.strftime("%Y-%m-%d"),
        "seconds": round(seconds),
        "mutants": len(verdicts),
        "unchanged": counts["unchanged"],
        "changed": changed,
        "caught": counts["caught"],
        "share": round(counts["caught"] / max(changed, 1), 3),
    }
    content = {**facts, "verdicts": [asdict(verdict) for verdict in verdicts]}
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(content, ensure_ascii=False, indent=1)
    (RESULTS / "mutants.json").write_text(text + "\n", encoding="utf-8")
    (RESULTS / "mutants.md").write_text(_page(facts, verdicts), encoding="utf-8")


def rewrite_page() -> None:
    """From the stored verdicts: after a reason was added."""
    facts = json.loads((RESULTS / "mutants.json").read_text(encoding="utf-8"))
    verdicts = [Verdict(**{**v, "mutant": Mutant(**v["mutant"])}) for v in facts["verdicts"]]
    (RESULTS / "mutants.md").write_text(_page(facts, verdicts), encoding="utf-8")


def _page(facts: dict[str, Any], verdicts: list[Verdict]) -> str:
    lines = [
        "# How much of a slip in our own parts and stacks the doctor notices",
        "",
        f"`{facts['command']}`, commit {facts['commit']}, {facts['date']}, {facts['machine']}, "
        f"{facts['seconds']} s.",
        "",
        f"Of {facts['mutants']} mutants, {facts['unchanged']} change nothing that the examined "
        f"models do. Of the other {facts['changed']}, the doctor catches {facts['caught']}: "
        f"**{facts['share']:.0%}**.",
        "",
        "## Survivors",
        "",
        "| place | before | after | why |",
        "|---|---|---|---|",
    ]
    for verdict in verdicts:
        if verdict.result == "survived":
            mutant = verdict.mutant
            place = f"{mutant.file.removeprefix('clearhead/')}:{mutant.line} `{mutant.function}`"
            why = REASONS.get((mutant.file.removeprefix("clearhead/"), mutant.function), "")
            lines.append(f"| {place} | `{mutant.before}` | `{mutant.after}` | {why} |")
    caught = Counter(str(verdict.by) for verdict in verdicts if verdict.result == "caught")
    lines += ["", "## What caught the others", "", "| first thing named | mutants |", "|---|---|"]
    lines += [f"| {by} | {n} |" for by, n in caught.most_common()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    arguments = parser.parse_args()
    if arguments.page:
        rewrite_page()
        return
    torch.set_num_threads(1)
    started = time.monotonic()
    healthy, by = try_tree(ROOT / "src")
    assert by is None and "crash" not in healthy, f"the models must be healthy first: {by}"
    everything = all_mutants()
    chosen = random.Random(arguments.seed).sample(everything, min(arguments.count, len(everything)))
    print(f"{len(chosen)} of {len(everything)} mutants")
    verdicts: list[Verdict] = []
    for mutant in chosen:
        verdicts.append(judge(mutant, healthy))
        last = verdicts[-1]
        change = f"{mutant.before} → {mutant.after}"
        print(f"{last.result:<9} {mutant.file}:{mutant.line} {change}  {last.by}")
        write(verdicts, time.monotonic() - started, arguments.seed)


if __name__ == "__main__":
    main()
