"""Writes a recipe for your own text in which every key is explained. The sizes are chosen from the
text and from a few real steps on this machine, each with its reason."""

import argparse
import math
import shlex
import textwrap
from dataclasses import replace
from pathlib import Path

from clearhead.config.data import DEFECTS
from clearhead.errors import ClearheadError

WIDTH = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="of the recipe, such as my-pairs")
    parser.add_argument("--source", type=Path, metavar="FILE", help="pairs: the lines to translate")
    parser.add_argument("--target", type=Path, metavar="FILE", help="pairs: their translations")
    parser.add_argument(
        "--text",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="instead: text for a language model; a folder stands for its .txt files",
    )
    parser.add_argument(
        "--minutes", type=float, default=30.0, metavar="N", help="of training (default: 30)"
    )
    parser.add_argument(
        "--clean",
        nargs="*",
        choices=DEFECTS,
        metavar="KIND",
        help=f"have prepare remove defects, all kinds or these: {', '.join(DEFECTS)}",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: NAME.toml")


def run(arguments: argparse.Namespace) -> int:
    template = _template(arguments)
    out: Path = arguments.out or Path(f"{arguments.name}.toml")
    files = [path.expanduser().absolute() for path in _files(arguments)]
    _check(arguments, out, files)
    # Here, so that a mistake is answered before torch is there.
    from clearhead.config import explained_toml, with_values
    from clearhead.config.recipe import TEMPLATES, load_recipe
    from clearhead.data.cleaning import describe_defects, find_defects
    from clearhead.data.survey import check_files
    from clearhead.environment import keep_freed_memory
    from clearhead.files import write_whole
    from clearhead.training.sizing import size_recipe

    keep_freed_memory()  # as training does: the steps are timed
    recipe = load_recipe(str(TEMPLATES / template))
    data = replace(recipe.data, train=tuple(map(str, files)))
    check_files(data)
    clean = () if arguments.clean is None else tuple(arguments.clean) or DEFECTS
    found = find_defects(data, Path("/"))
    sized = size_recipe(replace(recipe, data=data), arguments.minutes)
    paragraphs = [textwrap.fill(reason, WIDTH) for reason in sized.reasons]
    head = f"{arguments.name}: made by clearhead new, for {arguments.minutes:g} minutes."
    text = explained_toml(
        with_values(recipe, {"data.train": data.train, "data.clean": clean, **sized.values}),
        head="\n".join([head, *paragraphs]),
    )
    try:
        write_whole(out, text)
    except OSError as error:
        raise _unwritable(out, error) from None
    load_recipe(str(out))
    print("\n\n".join(paragraphs))
    print("\n" + "\n".join(describe_defects(found)))
    if found.findings and not clean:
        print("  They stay in. To have them removed and listed, give --clean, or --clean KIND …")
    named = shlex.quote(str(out))
    print(f"\nwrote {out}; read it, change it, and then:")
    print(f"  clearhead prepare {named}\n  clearhead train {named}")
    return 0


def _template(arguments: argparse.Namespace) -> str:
    pair = (arguments.source, arguments.target)
    if arguments.text is not None and pair == (None, None):
        return "my-text.toml"
    if arguments.text is None and None not in pair:
        return "my-pairs.toml"
    raise ClearheadError(
        f"clearhead new {arguments.name} needs pairs (--source FILE --target FILE) "
        "or text (--text FILES), not both and not half"
    )


def _files(arguments: argparse.Namespace) -> list[Path]:
    return arguments.text or [arguments.source, arguments.target]


def _check(arguments: argparse.Namespace, out: Path, files: list[Path]) -> None:
    """What can be wrong with the words alone: nothing has been read or measured yet."""
    if not 0 < arguments.minutes < math.inf:
        raise ClearheadError(
            f"minutes={arguments.minutes:g} must be above 0 and finite; try --minutes 30"
        )
    for path in (*files, out):
        try:
            str(path).encode("utf-8")
        except UnicodeEncodeError:
            raise ClearheadError(
                f"the name {str(path)!r} is not UTF-8, and a recipe is; rename it"
            ) from None
    if out.suffix != ".toml":
        raise ClearheadError(f"out={str(out)!r} must end in .toml; try --out {out}.toml")
    try:
        parent_is_there, is_there = out.parent.is_dir(), out.exists()
    except OSError as error:  # too long a name, or no right to look
        raise _unwritable(out, error) from None
    if not parent_is_there:
        raise ClearheadError(
            f"out={str(out)!r} is in a folder that is not there; make it first: "
            f"mkdir -p {shlex.quote(str(out.parent))}"
        )
    if is_there:
        raise ClearheadError(f"{out} is already there; remove it, or name another: --out FILE")


def _unwritable(out: Path, error: OSError) -> ClearheadError:
    return ClearheadError(f"{out} cannot be written ({error.strerror}); name another: --out FILE")
