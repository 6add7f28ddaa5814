"""Finds the place in the port's source that sets a number with which one of its lines computes."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from .operations import Operation, SourceLine

_SAME = 1e-3
_LARGE = 1000


def where_set(line: SourceLine, number: float) -> SourceLine | None:
    """Return the line of the same file that holds this number, if it is the only one. Small whole
    numbers are left out: they are sizes and axes more often than settings."""
    tree = _tree(line.file)
    if tree is None or not number:
        return None
    found = {at for at, value in _settings(tree) if abs(value / number - 1) < _SAME}
    return _at(tree, line.file, found.pop()) if len(found) == 1 else None


def where_built(line: SourceLine) -> SourceLine | None:
    """Return the line of the same file that builds the norm which a line calls: `self.norm = …` for
    `self.norm(x)`, if only one line assigns that name."""
    tree = _tree(line.file)
    if tree is None:
        return None
    functions = [call.func for call in _on(tree, line, ast.Call)]
    called = {function.attr for function in functions if isinstance(function, ast.Attribute)}
    return _assigned(tree, line.file, called, "Norm")


def where_assigned(line: SourceLine, number: float, model: nn.Module) -> SourceLine | None:
    """Return the line of the same file that gives this number to an attribute which a line reads,
    as in `scores * self.scale`."""
    tree = _tree(line.file)
    if tree is None or not number:
        return None
    names = {
        node.attr for node in _on(tree, line, ast.Attribute) if _holds(model, node.attr, number)
    }
    return _assigned(tree, line.file, names)


def where_default(line: SourceLine) -> SourceLine | None:
    """Return the line that gives a default value to a parameter with which a line computes, as in
    `def buckets(n, furthest=128)`. The parameter must be the only one with a default, and no call
    in the file may give it another value."""
    tree = _tree(line.file)
    functions = [] if tree is None else list(_on(tree, line, ast.FunctionDef))
    if tree is None or not functions:
        return None
    function = max(functions, key=lambda node: node.lineno)
    names = [argument.arg for argument in function.args.args]
    read = {node.id for node in _on(tree, line, ast.Name)}
    defaults = zip(reversed(names), reversed(function.args.defaults))
    found = [(name, node) for name, node in defaults if name in read and _is_plain(node)]
    if len(found) != 1:
        return None
    name, default = found[0]
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        is_called = ast.unparse(call.func).split(".")[-1] == function.name
        before = names.index(name) - (names[0] == "self")
        if is_called and (len(call.args) > before or name in {word.arg for word in call.keywords}):
            return None
    return _at(tree, line.file, default.lineno)


def where_repeated(file: str) -> SourceLine | None:
    """Return the line of a file that puts one object into a list several times, as `[Layer()] * n`,
    if there is only one such line."""
    tree = _tree(file)
    if tree is None:
        return None
    found = {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
        for side in (node.left, node.right)
        if isinstance(side, ast.List) and any(isinstance(item, ast.Call) for item in side.elts)
    }
    return _at(tree, file, found.pop()) if len(found) == 1 else None


def _is_plain(node: ast.expr) -> bool:
    number = node.value if isinstance(node, ast.Constant) else None
    return isinstance(number, int | float) and not isinstance(number, bool)


def where_passed_on(source: Operation, readers: list[Operation]) -> SourceLine | None:
    """Return the line that only passes a tensor on, between the line that makes it and those that
    read it: `memory = x`, or the `return x` of a function that does not read it."""
    shared = [frame for frame in source.frames if all(frame in r.frames for r in readers)]
    if not shared or not readers:
        return None
    at = source.frames.index(shared[0])
    made, read = source.lines[at], readers[0].lines[readers[0].frames.index(shared[0])]
    tree = _tree(made.file)
    if tree is None or made.file != read.file:
        return None
    names = {node.id for node in _on(tree, read, ast.Name)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Name):
            continue
        targets = {target.id for target in node.targets if isinstance(target, ast.Name)}
        if made.line < node.lineno < read.line and names & targets:
            return _at(tree, made.file, node.lineno)
    if not at or _in_a_loop(tree, made):
        return None
    return where_returned(source.lines[at - 1])


def _in_a_loop(tree: ast.Module, line: SourceLine) -> bool:
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While))
    return any(n.lineno <= line.line <= (n.end_lineno or n.lineno) for n in loops)


def where_returned(line: SourceLine | None) -> SourceLine | None:
    """Return the `return x` at the end of the function that a line belongs to."""
    tree = None if line is None else _tree(line.file)
    if line is None or tree is None:
        return None
    for body in ast.walk(tree):
        if not isinstance(body, ast.FunctionDef) or body.name != line.function:
            continue
        last = body.body[-1]
        is_name = isinstance(last, ast.Return) and isinstance(last.value, ast.Name)
        if is_name and body.lineno <= line.line <= last.lineno:
            return _at(tree, line.file, last.lineno)
    return None


def _holds(model: nn.Module, name: str, number: float) -> bool:
    values = [vars(module).get(name) for module in model.modules()]
    return any(isinstance(v, float) and abs(v / number - 1) < _SAME for v in values)


def _on(tree: ast.Module, line: SourceLine, kind: Any) -> Iterator[Any]:
    nodes: list[Any] = [node for node in ast.walk(tree) if isinstance(node, kind)]
    yield from (node for node in nodes if node.lineno <= line.line <= node.end_lineno)


def _assigned(tree: ast.Module, file: str, names: set[str], word: str = "") -> SourceLine | None:
    found = {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and names.intersection(_attributes(node))
        and word in ast.unparse(node.value)
    }
    return _at(tree, file, found.pop()) if len(found) == 1 else None


@cache
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def _settings(tree: ast.Module) -> Iterator[tuple[int, float]]:
    powers = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
        for part in ast.walk(node.right)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in powers:
            value = node.value
            if isinstance(value, float) or (isinstance(value, int) and value >= _LARGE):
                yield node.lineno, value


def _attributes(node: ast.Assign) -> set[str]:
    parts = [part for target in node.targets for part in ast.walk(target)]
    return {part.attr for part in parts if isinstance(part, ast.Attribute)}


def _at(tree: ast.Module, file: str, line: int) -> SourceLine:
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    innermost = max(around, key=lambda node: node.lineno, default=None)
    return SourceLine(file, line, "<module>" if innermost is None else innermost.name)
