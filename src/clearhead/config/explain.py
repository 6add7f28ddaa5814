"""What each key of a recipe means. The explanation of a field stands under it in its dataclass, and
nowhere else: `clearhead describe`, `clearhead new` and the table of options all print that text."""

import ast
import inspect
import re
import textwrap
from dataclasses import MISSING, Field, asdict, fields
from functools import cache
from typing import Any

from clearhead.config.recipe import FROM_DATA, SECTIONS, Recipe, toml_value

COLUMN = 30  # where the explanations begin
WIDTH = 100
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # what a comment of TOML must not hold


@cache
def explanations(config: type) -> dict[str, str]:
    """The text under each field of a configuration class, as one line, by the field's name."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(definition.body, definition.body[1:]):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            assert isinstance(field.target, ast.Name) and isinstance(below.value, ast.Constant)
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found


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
