"""Finds what a learner's file takes from the package although the exercise asks the learner to
write it. Such a file may pass, but the verdict says so, and a teacher sees it."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from clearhead.course.exercises import EXERCISES, Exercise

PACKAGE = "clearhead"


def taken_parts(source: bytes, exercise: Exercise, learned: Mapping[str, Any]) -> list[str]:
    """Return the names of the parts that were taken. `learned` are the names in the file after it
    ran."""
    later = {f for each in EXERCISES if each.number >= exercise.number for f in each.functions}
    named = list(_named(ast.parse(source), later))
    for function in exercise.functions:
        module = getattr(learned.get(function), "__module__", "") or ""
        if module.startswith(f"{PACKAGE}."):
            named.append(f"{module}.{function}")
    return list(dict.fromkeys(named))


def _named(tree: ast.Module, later: set[str]) -> Iterator[str]:
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for name in names:
                    if name.name.split(".")[0] == PACKAGE and name.name != f"{PACKAGE}.course":
                        yield name.name
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == PACKAGE:
                for name in names:
                    if not _given(module, name.name, later):
                        yield f"{module}.{name.name}"
            case ast.Attribute(value=ast.Name(id="earlier"), attr=name) if name in later:
                yield f"{PACKAGE}.course.earlier.{name}"
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                if PACKAGE in text or "solutions" in text:
                    yield repr(text)


def _given(module: str, name: str, later: set[str]) -> bool:
    """The file with blanks imports it itself."""
    if module == f"{PACKAGE}.course":
        return name in ("blank", "earlier")
    return module == f"{PACKAGE}.course.earlier" and name != "*" and name not in later
