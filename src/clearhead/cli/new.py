"""Writes a recipe for your own text, in which every key is explained. Sizes are chosen from the
text and from a few training steps on this machine; each choice is printed with its reason."""

import argparse
import shlex
import textwrap
from pathlib import Path
from typing import Any

from clearhead.api.recipe_for import WIDTH, recipe_for
from clearhead.cli.calling import add_clean_argument, settings
from clearhead.cli.options import add_option
from clearhead.cli.progress import add_quiet, showing_stages
from clearhead.cli.spelling import as_flags
from clearhead.config.data import InvalidInput
from clearhead.config.tasks import NewOptions
from clearhead.errors import ClearheadError
from clearhead.intake.cleaning import describe_defects
from clearhead.intake.own import labels_as_written
from clearhead.intake.own_text import OwnText

CALLS = recipe_for
SAY_WHAT = "say what it is: --source and --target, --text, --table or --label"
SKIPPABLE: tuple[InvalidInput, ...] = ("invalid-utf8", "malformed")
"""Blank lines and lines that are too long are skipped anyway, and files that are not parallel line
by line are refused."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="name of the recipe, such as my-pairs")
    parser.add_argument("--source", type=Path, metavar="FILE", help="pairs: lines to translate")
    parser.add_argument("--target", type=Path, metavar="FILE", help="pairs: their translations")
    parser.add_argument(
        "--text",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="or: text for a language model; a folder means all .txt and .text files in it, even "
        "packed (.gz, .zst)",
    )
    parser.add_argument(
        "--table",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="or: a table (.tsv, .csv, .json, .jsonl, .parquet) of pairs, of texts with labels or "
        "of texts alone; a translation memory (.tmx); or catalogues (.po, .xlf, .xliff; several) "
        "for a translator that keeps placeholders",
    )
    parser.add_argument(
        "--columns",
        nargs="+",
        metavar="NAME",
        help="columns of the table (default: chosen by their content)",
    )
    parser.add_argument(
        "--label", nargs="+", metavar="LABEL=FILE", help="or: a file of texts for each label"
    )
    add_option(parser, NewOptions, "masked")
    add_option(parser, NewOptions, "start", flag="--from", metavar="RUN")
    add_option(parser, NewOptions, "rehearse_texts")
    add_option(parser, NewOptions, "minutes", metavar="N")
    add_option(parser, NewOptions, "threads")
    parser.add_argument(
        "--skip",
        nargs="+",
        choices=SKIPPABLE,
        metavar="KIND",
        help="skip and count lines or rows that are invalid, of these kinds: "
        f"{', '.join(SKIPPABLE)} (blank ones always are)",
    )
    add_clean_argument(parser, "remove documents with defects")
    add_quiet(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the recipe to write, which is named like it (default: NAME.toml)",
    )


def run(namespace: argparse.Namespace) -> int:
    namespace.out = out = namespace.out or Path(f"{namespace.name}.toml")
    if namespace.columns is not None and namespace.table is None:
        raise ClearheadError("--columns names columns of a table; give --table as well")
    text = _text(namespace)
    arguments: dict[str, Any] = settings(namespace, recipe_for) | {"text": text}
    with showing_stages(namespace):
        recipe = recipe_for(**arguments)
    print("\n\n".join(textwrap.fill(as_flags(reason), WIDTH) for reason in recipe.reasons))
    print("\n" + "\n".join(describe_defects(recipe.defects)))
    if recipe.defects.findings and not recipe.data.clean:
        print("  They are not removed. To remove and list them: --clean, or --clean KIND …")
    named = shlex.quote(str(out))
    print(f"\nwrote {out}; read it, change it, and then:")
    print(f"  clearhead train {named}")
    return 0


def _text(namespace: argparse.Namespace) -> OwnText:
    source, target, label = namespace.source, namespace.target, namespace.label
    options = [source or target, namespace.text, namespace.table, label]
    if sum(option is not None for option in options) == 1:
        if source is not None and target is not None:
            return OwnText.parallel_files(source, target)
        if namespace.text is not None:
            return OwnText.files(*namespace.text)
        if namespace.table is not None:
            if len(namespace.table) > 1:
                return OwnText.catalogues(*namespace.table)
            return OwnText.table(namespace.table[0], namespace.columns or ())
        if label is not None:
            return OwnText.labels(labels_as_written(label))
    if (source is None) != (target is None) and sum(option is not None for option in options) == 1:
        there, lacks = ("--source", "--target") if target is None else ("--target", "--source")
        raise ClearheadError(
            f"{there} needs {lacks} FILE, whose line n belongs to line n of the other file; for a "
            f"text without translations: --text {shlex.quote(str(source or target))}"
        )
    raise ClearheadError(
        f"clearhead new {namespace.name} needs pairs (--source FILE --target FILE), text (--text "
        "FILES), a table (--table FILE) or labels (--label LABEL=FILE …): exactly one of them, "
        "complete"
    )
