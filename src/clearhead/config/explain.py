"""What each key of a recipe means. The explanation of a field is written under it in its dataclass,
and nowhere else: `clearhead describe`, `clearhead new` and the table of options all print that
text."""

import ast
import inspect
import re
import sys
import textwrap
from dataclasses import MISSING, Field, asdict, fields
from functools import cache
from itertools import zip_longest
from typing import Any

from clearhead.config.recipe import FROM_DATA, SECTIONS, Recipe, toml_value

COLUMN = 30  # where the explanations begin
WIDTH = 100
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # what a comment of TOML must not hold


@cache
def explanations(config: type) -> dict[str, str]:
    """The text under each field of a configuration class and its bases, as one line, by the field's
    name. A field without a text, whose default is a field of another class, has the text of that
    field."""
    texts: dict[str, str] = {}
    for kind in reversed(config.__mro__[:-1]):
        definition = _classes(kind.__module__)[kind.__name__]
        for field, below in zip_longest(definition.body, definition.body[1:]):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(text)):
                    texts[name] = " ".join(str(text).split())
                case ast.AnnAssign(
                    target=ast.Name(id=name), value=ast.Attribute(ast.Name(id=other), attr=attr)
                ), _:
                    module = sys.modules[kind.__module__]
                    texts[name] = explanations(getattr(module, other))[attr]
    return texts


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    body = ast.parse(inspect.getsource(sys.modules[module])).body
    return {node.name: node for node in body if isinstance(node, ast.ClassDef)}


def explained_toml(recipe: Recipe, head: str = "") -> str:
    """The whole recipe as a file that `load_recipe` reads: every key with its value, its meaning,
    and its default where the recipe has another value."""
    lines = [f"# {CONTROL.sub(_escape, line)}".rstrip() for line in head.splitlines()]
    for section, config in SECTIONS.items():
        values = getattr(recipe, section)
        if values is None:
            continue
        lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
        for field in fields(config):
            lines += _explained(section, field, asdict(values)[field.name])
    return "\n".join(lines) + "\n"


def _escape(character: re.Match[str]) -> str:
    return f"\\u{ord(character[0]):04x}"


def _explained(section: str, field: Field[Any], value: object) -> list[str]:
    setting, meaning = f"# {field.name}", explanations(SECTIONS[section])[field.name]
    if f"{section}.{field.name}" in FROM_DATA:
        meaning = f"Taken from the prepared data. {meaning}"
    elif value is not None:
        setting = f"{field.name} = {toml_value(value)}"
        default = None if field.default is MISSING else field.default
        if default not in (None, (), value):
            meaning += f" Default: {toml_value(default)}."
    comment = [f"# {line}" for line in textwrap.wrap(meaning, WIDTH - COLUMN - 2)]
    if len(setting) < COLUMN:
        comment[0] = f"{setting:<{COLUMN}}{comment[0]}"
        return [comment[0], *(" " * COLUMN + line for line in comment[1:])]
    return [setting, *(" " * COLUMN + line for line in comment)]
