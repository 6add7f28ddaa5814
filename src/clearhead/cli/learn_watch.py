"""`clearhead learn --watch` checks the current file whenever it is saved; keys do the rest. It
polls the times of files, which works on network drives and with every editor."""

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator

from clearhead.cli.learn_actions import move_on, restore, show_solution, tell_hint, tell_passed
from clearhead.course.exercises import Exercise
from clearhead.course.folder import LearnFolder, missing_file
from clearhead.course.phrasebook import phrases
from clearhead.course.telling import tell_list, tell_verdict

SECONDS = 0.3


def watch(folder: LearnFolder) -> int:
    """Watch until q or Ctrl-C is pressed."""
    say = phrases(folder.state.language)
    seen, passed = None, False
    print(say["watching"].format(folder=folder.path, file=folder.current.file))
    with _keys() as key, contextlib.suppress(KeyboardInterrupt):
        while True:
            exercise = folder.current
            if (now := _changed(folder, exercise)) != seen:
                seen, passed = now, _show(folder, exercise)
            match key():
                case "q":
                    return 0
                case "h":
                    print(tell_hint(folder, exercise))
                case "r":
                    seen = None
                case "l":
                    print(tell_list(folder))
                case "s":
                    with _plain_terminal():
                        show_solution(folder, exercise, yes=False)
                case "x":
                    with _plain_terminal():
                        restore(folder, exercise, yes=False)
                case "n" if passed:
                    move_on(folder)
                    if folder.current is exercise:
                        return 0
                    seen = None
                case "n":
                    print(say["not_yet"])
                case "p" if (previous := folder.before(exercise)) is not None:
                    folder.read_again()
                    folder.state.current = previous.name
                    folder.save()
                    seen = None
                case "p":
                    print(say["first"])
                case _:
                    continue
            if seen is not None:
                print(_keys_of(folder, exercise))
            sys.stdout.flush()
    return 0


def _changed(folder: LearnFolder, exercise: Exercise) -> tuple[str, int]:
    file = folder.path / exercise.file
    for pause in (SECONDS, 0.0):  # an editor that saves may replace the file, which is away then
        try:
            return exercise.name, file.stat().st_mtime_ns
        except OSError:
            time.sleep(pause)
    raise missing_file(file, exercise, folder.state.language)


def _show(folder: LearnFolder, exercise: Exercise) -> bool:
    verdict = folder.check([exercise])[exercise.name]
    language = folder.state.language
    print("\n" + tell_verdict(exercise, verdict, language))
    if verdict.complete:
        print(tell_passed(folder, exercise, verdict.n_checks, watching=True))
    print(_keys_of(folder, exercise), flush=True)
    return verdict.complete


def _keys_of(folder: LearnFolder, exercise: Exercise) -> str:
    """Describe what each key does, and how many hints have been shown."""
    language = folder.state.language
    all_hints = len(exercise.texts(language)["hints"])
    shown = f"{folder.state.progress(exercise.name).hints}/{all_hints}"
    return phrases(language)["keys"].format(hints=shown)


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[], str]]:
    """Read single keys without Enter. Without a terminal, only wait."""
    if not sys.stdin.isatty():
        yield _wait
        return
    try:
        import msvcrt
    except ImportError:
        with _plain_terminal(single_keys=True):
            yield _unix_key
        return

    def windows_key() -> str:
        time.sleep(SECONDS)
        return msvcrt.getwch() if msvcrt.kbhit() else ""  # pyright: ignore

    yield windows_key


def _wait() -> str:
    time.sleep(SECONDS)
    return ""


def _unix_key() -> str:
    ready, _, _ = select.select([sys.stdin], [], [], SECONDS)
    if not ready:
        return ""
    # Not from sys.stdin, which would read ahead: `select` does not see what waits in its buffer.
    key = os.read(sys.stdin.fileno(), 1)
    return key.decode("ascii", "ignore") if key else "q"  # the terminal was closed


@contextlib.contextmanager
def _plain_terminal(*, single_keys: bool = False) -> Iterator[None]:
    """Switch the terminal to single keys or to its usual line input, and restore its state
    afterwards."""
    try:
        import termios
        import tty
    except ImportError:
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    if single_keys:
        tty.setcbreak(sys.stdin)
    else:
        lines = termios.tcgetattr(sys.stdin)
        lines[3] |= termios.ICANON | termios.ECHO
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, lines)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
