"""Exercises that check themselves: files with blanks, hints in steps,
and an explanation of what is wrong. Offline, in English and Chinese."""

import argparse
import shutil
import sys
from pathlib import Path

from clearhead.cli.learn_actions import move_on, restore, show_solution, tell_hint, tell_passed
from clearhead.cli.learn_watch import watch
from clearhead.course.class_report import class_csv, class_table, read_class
from clearhead.course.exercises import EXERCISES, Exercise
from clearhead.course.folder import FOLDER, LearnFolder, find_exercise
from clearhead.course.phrasebook import phrases, refusal
from clearhead.course.state import LANGUAGES, STATE, LearnLanguage
from clearhead.course.telling import tell_list, tell_verdict
from clearhead.files import write_whole

ACTIONS = ("start", "check", "hint", "solution", "reset", "list", "report")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "actions:\n"
        "  clearhead learn                 makes the folder, or shows where you are\n"
        "  clearhead learn --watch         checks the current file at each save\n"
        "  clearhead learn check [NAME]    checks once (--all: every file)\n"
        "  clearhead learn hint [NAME]     the next of three hints\n"
        "  clearhead learn solution [NAME] the reference\n"
        "  clearhead learn reset [NAME]    the file with blanks again; yours is kept\n"
        "  clearhead learn list            all exercises, and what you have done\n"
        "  clearhead learn report FOLDER…  a class as a table; runs the students' code\n\n"
        "The exit code of check is 0: passed, 1: not yet, 2: cannot run."
    )
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="start", help="see below")
    parser.add_argument("names", nargs="*", metavar="NAME", help="an exercise, or folders (report)")
    parser.add_argument(
        "--folder",
        type=Path,
        help=f"folder of the exercises (default: {FOLDER}, or the current folder)",
    )
    parser.add_argument(
        "--language", choices=LANGUAGES, help="language of files and messages (default: en)"
    )
    parser.add_argument("--watch", action="store_true", help="check whenever the file is saved")
    parser.add_argument("--all", action="store_true", help="check: every exercise")
    parser.add_argument("--yes", action="store_true", help="do not ask before showing or restoring")
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="report: write the details as well"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "report":
        return _report(arguments)
    path = arguments.folder or (Path() if Path(STATE).is_file() else FOLDER)
    new = not (path / STATE).exists()
    damaged = (path / STATE).is_file() and LearnFolder(path).state.damaged is not None
    if arguments.action == "start":
        folder = _start(path, arguments.language)
    else:
        folder = LearnFolder.open(path, arguments.language)
    if damaged:
        print(phrases(folder.state.language)["damaged"], file=sys.stderr)
    if arguments.watch:
        return watch(folder)
    if arguments.action == "start":
        print(_screen(folder, new))
        return 0
    if arguments.action == "list":
        print(tell_list(folder))
        return 0
    if arguments.action == "check":
        return _check(folder, arguments)
    exercise = _chosen(folder, arguments.names)
    match arguments.action:
        case "hint":
            print(tell_hint(folder, exercise))
        case "solution":
            show_solution(folder, exercise, arguments.yes)
        case "reset":
            restore(folder, exercise, arguments.yes)
    return 0


def _start(path: Path, language: LearnLanguage | None) -> LearnFolder:
    last_language = LearnFolder(path).state.language if (path / STATE).is_file() else "en"
    return LearnFolder.make(path, language or last_language)


def _screen(folder: LearnFolder, new: bool) -> str:
    say, language = phrases(folder.state.language), folder.state.language
    n, passed = len(EXERCISES), sum(map(folder.has_passed, EXERCISES))
    if passed == n:
        return say["all_passed"].format(n=n)
    if folder.has_passed(folder.current):
        move_on(folder)
    current = folder.current
    here = f" --folder {folder.path}" if folder.path not in (FOLDER, Path()) else ""
    command = f"clearhead learn{here} --watch"
    first = say["made"].format(folder=folder.path, n=n)
    return "\n".join(
        [
            first if new else say["progress"].format(passed=passed, n=n),
            say["now"].format(file=current.file, title=current.texts(language)["title"]),
            say["next"].format(command=command),
            say["begins"],
        ]
    )


def _chosen(folder: LearnFolder, names: list[str]) -> Exercise:
    if len(names) > 1:
        raise refusal(folder.state.language, "one_name", n=len(names), names=" ".join(names))
    return find_exercise(names[0], folder.state.language) if names else folder.current


def _check(folder: LearnFolder, arguments: argparse.Namespace) -> int:
    chosen = EXERCISES if arguments.all else [_chosen(folder, arguments.names)]
    status, verdicts = 0, folder.check(chosen)
    for exercise in chosen:
        verdict = verdicts[exercise.name]
        print(tell_verdict(exercise, verdict, folder.state.language))
        if verdict.complete:
            print(tell_passed(folder, exercise, verdict.n_checks, watching=False))
        cannot_run = verdict.trouble in ("syntax", "crash", "time", "missing")
        status = max(status, 0 if verdict.complete else 2 if cannot_run else 1)
    # Learners who pass a later exercise have skipped the ones before it.
    if not arguments.all and status == 0 and folder.is_not_before_current(chosen[0]):
        move_on(folder, chosen[0])
    return status


def _report(arguments: argparse.Namespace) -> int:
    language: LearnLanguage = arguments.language or "en"
    folders = [Path(name) for name in arguments.names]
    if not folders:
        raise refusal(language, "report_needs")
    if missing := [folder for folder in folders if not folder.is_dir()]:
        raise refusal(language, "no_folder", folder=missing[0])
    print(phrases(language)["runs_code"], file=sys.stderr)
    students = list(read_class(folders))
    print(class_table(students, language, max(shutil.get_terminal_size((100, 24)).columns, 80)))
    if arguments.csv is not None:
        write_whole(arguments.csv, class_csv(students))
    return 0
