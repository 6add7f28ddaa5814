"""Writes the table of docs/en/options.md, from the explanations in `config/model.py`.

python -m tools.options_page      # writes it into the page; docs/zh is translated by hand
"""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from clearhead.config import ModelConfig, explanations

PAGE = Path(__file__).parent.parent / "docs" / "en" / "options.md"


def values_of(name: str) -> str:
    """Return the values of an option, the default first."""
    hint: Any = get_type_hints(ModelConfig)[name]
    default = ModelConfig.__dataclass_fields__[name].default
    if words := [word for word in get_args(hint) if isinstance(word, str)]:
        assert words[0] == default, f"the default of {name} must be the first of its words"
        return ", ".join(f"`{word}`" for word in words)
    if hint is bool:
        return "`true`, `false`" if default else "`false`, `true`"
    return "not set" if default is None else f"`{default}`"


def options_table() -> str:
    meaning = explanations(ModelConfig)
    rows = [
        f"| `{field.name}` | {values_of(field.name)} | {meaning[field.name]} |"
        for field in fields(ModelConfig)
    ]
    return "\n".join(["| option | values | meaning |", "|---|---|---|", *rows]) + "\n"


def with_options(text: str) -> str:
    """Return the page with its table made anew."""
    (table,) = re.findall(r"(?:^\|.*\n)+", text, flags=re.M)
    return text.replace(table, options_table())


if __name__ == "__main__":
    PAGE.write_text(with_options(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
