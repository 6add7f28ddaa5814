"""Slips of the pen: one-line changes of the sources of `parts` and `stacks`, made from their syntax
trees."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Of no interest: what a model prints, and what only packed documents use.
SKIPPED = {"extra_repr", "same_document", "count_document_positions", "__getitem__"}

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
    for package in ("parts", "stacks"):
        for path in sorted((ROOT / "src" / "clearhead" / package).rglob("*.py")):
            name = path.relative_to(ROOT / "src").as_posix()
            found += mutants_of(name, path.read_text(encoding="utf-8"))
    return found


def plant(mutant: Mutant, tree: Path) -> None:
    path = tree / mutant.file
    source = path.read_bytes()
    path.write_bytes(source[: mutant.start] + mutant.after.encode() + source[mutant.end :])
