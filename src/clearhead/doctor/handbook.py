"""Writes the page that lists every check, from the texts: `python -P -m clearhead.doctor.handbook`.

Without an argument, it writes docs/en/doctor/checks.md and its Chinese counterpart below the folder
in which it is started.
"""

import sys
from pathlib import Path

from .checks import CHECKS, Check
from .texts import LANGUAGES, Language, code, sentences, word


def handbook(language: Language) -> str:
    """Make the page that explains every check, from the texts."""
    lines = [f"# {word('handbook', language)}", "", word("handbook_intro", language), ""]
    for check in CHECKS:
        lines += _entry(check, language)
    return "\n".join(lines)


def _entry(check: Check, language: Language) -> list[str]:
    text = sentences(language)["checks"][check.name]
    title = word("entry", language).format(title=text["title"], name=check.name)
    lines = [f"## {title}", ""]
    for key in ("asks", "why", "cause"):
        lines += [_label(key, language) + text[key], ""]
    if not check.quick:
        lines += [word("quick_no", language), ""]
    lines += [_label("can_say", language).rstrip(), ""]
    colon = word("colon", language)
    lines += [f"- `{check.name}.{case}`{colon}{said}" for case, said in text["seen"].items()]
    for origin, words in text.get("origins", {}).items():
        name = word("traced", language).format(origin=f"`{origin}`")
        lines.append(f"- {name}{colon}{words['title']}{word('stop', language)}{words['cause']}")
    pair = code()[check.name]
    for key, sign in (("wrong", "✗"), ("right", "✓")):
        lines += ["", f"{sign} {word(key, language)}", "", "```python"]
        lines += [pair[key].strip("\n"), "```"]
    return [*lines, ""]


def _label(key: str, language: Language) -> str:
    return word("label", language).format(label=word(key, language))


def path(folder: Path, language: Language) -> Path:
    """Return the path of the page in a language."""
    return folder / "docs" / language / "doctor" / "checks.md"


def write(folder: Path) -> None:
    """Write the pages of all languages."""
    for language in LANGUAGES:
        path(folder, language).write_text(handbook(language), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
