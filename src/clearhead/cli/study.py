"""Compares variants of a recipe over seeds, at an equal budget. `run` does the missing runs, and
first says how long they will take; if it is killed at any moment, the same command resumes. `show`
prints the result so far; `page` writes it as Markdown and SVG in both languages."""

import argparse
from functools import partial
from pathlib import Path

from clearhead.api.paths import STUDIES
from clearhead.api.studying import study
from clearhead.cli.calling import settings
from clearhead.cli.progress import add_quiet
from clearhead.studies.study_file import study_names

CALLS = study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["run", "show", "page"])
    parser.add_argument(
        "name", metavar="NAME", help=f"{', '.join(study_names())}; or the path of a .toml file"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help=f"folder of its runs (default: {STUDIES}/NAME)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="run: number of runs at the same time (default: one per core)",
    )
    parser.add_argument(
        "--part",
        action="append",
        default=[],
        metavar="ROLE=FILE.py:NAME",
        help="run: a part that the study's file names, whose FILE.py may be run; may be given "
        "several times",
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="run: only say how long it will take, and which differences it can show",
    )
    add_quiet(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="page: the folder to write it into",
    )


def run(arguments: argparse.Namespace) -> int:
    opened = study(arguments.name, **settings(arguments, study))
    match arguments.action:
        case "run":
            opened.run(
                workers=arguments.workers,
                only_plan=arguments.plan,
                parts=arguments.part,
                say=(lambda _: None) if arguments.quiet else partial(print, flush=True),
            )
            if not arguments.plan:
                print(opened.table())
        case "show":
            print(opened.table())
        case "page":
            print(*opened.page(arguments.out), sep="\n")
    return 0
