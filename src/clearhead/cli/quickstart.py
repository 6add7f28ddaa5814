"""A tour of three minutes, in a folder of its own: text, training, a score, a line that the model
copies, and a picture of its attention. Every command is shown before it runs, and you can type it
yourself. If the tour is stopped at any moment, the same command resumes it."""

import argparse
import importlib.util
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from clearhead.cli.lines import at_least_one
from clearhead.errors import ClearheadError
from clearhead.files import refuse_unusual, write_whole
from clearhead.processes import start_module

FOLDER = Path("clearhead-quickstart")
MARK, FINISHED = ".quickstart", "finished"
EXPORTED = "copy-task-hf"
LINE = "clearhead2026"
PATIENCE = 10  # seconds after Ctrl-C in which a command may end by itself

NEXT = """\
Where to go next
  clearhead translate runs/copy-task
      in {folder}: type lines, and the model copies them
  clearhead train copy-task --model.positions none --folder runs/no-positions
      in {folder}: does a model without positions learn to copy?
  clearhead learn
      write the parts of a Transformer yourself; every file is checked
  clearhead new my-pairs --source FILE --target FILE
      a recipe for your own pairs; with --text FILES, for your own text
  clearhead doctor FILE.py:NAME
      silent bugs in a Transformer of your own"""


class Stop(NamedTuple):
    """One command of the tour."""

    shows: str
    arguments: list[str]
    typed: str | None = None
    """The text for its standard input."""

    @property
    def command(self) -> str:
        """The command as a user types it."""
        echo = "" if self.typed is None else f"echo {self.typed} | "
        return echo + shlex.join(["clearhead", *self.arguments])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", nargs="?", type=Path, default=FOLDER, help=f"a new folder (default: {FOLDER})"
    )
    parser.add_argument(
        "--steps", type=at_least_one, metavar="N", help="steps of training (default: the recipe's)"
    )


def run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    _enter(folder)
    print(f"$ cd {shlex.quote(str(folder))} && export CLEARHEAD_DATA=data")
    steps = [] if arguments.steps is None else ["--steps", str(arguments.steps)]
    again = shlex.join(["clearhead", "quickstart", str(folder), *steps])
    for stop in _tour(folder, arguments.steps):
        print(f"\n# {stop.shows}\n$ {stop.command}", flush=True)
        status, interrupted = _execute(stop, folder)
        if interrupted:
            print(f"\nclearhead: interrupted; to resume the tour: {again}", file=sys.stderr)
            return 128 + signal.SIGINT
        if status:
            print(
                f"clearhead: the tour stops, because this command ended with exit code {status}; "
                f"fix what its message says, then resume the tour: {again}",
                file=sys.stderr,
            )
            return status
    write_whole(folder / MARK, f"{FINISHED}\n")
    print(f"\nThe picture: {folder / 'attention.svg'}. Open it in a browser.\n")
    print(NEXT.format(folder=folder))
    return 0


def _tour(folder: Path, steps: int | None) -> list[Stop]:
    trained = "runs/copy-task"
    stops = [
        Stop("Text: random strings, which the model will copy.", ["data", "get", "copy-task"]),
        Stop("Train a tokenizer; turn the text into token files.", ["prepare", "copy-task"]),
        Stop(
            "Train a Transformer of one layer. This takes most of the time.",
            ["train", "copy-task", *([] if steps is None else ["--train.steps", str(steps)])],
        ),
        Stop(
            "How many lines of the test set does the model copy exactly?",
            ["evaluate", trained, "--exact"],
        ),
    ]
    if (folder / EXPORTED).exists():
        print(f"({EXPORTED} exists already: the export is left out)")
    elif importlib.util.find_spec("transformers") is None:
        print('(the export is left out: it needs pip install "clearhead[hf]")')
    else:
        to = ["--to", "huggingface", EXPORTED]
        stops.append(
            Stop("Export the model for Hugging Face transformers.", ["export", trained, *to])
        )
    stops.append(
        Stop(
            "Copy a line of your own, and draw the attention of each character: the diagonal.",
            ["translate", trained, "--attention", "attention.svg"],
            typed=LINE,
        )
    )
    return stops


def _enter(folder: Path) -> None:
    """Enter a new folder, or a folder in which a tour has begun and is not finished."""
    if folder.exists() and not folder.is_dir():
        raise ClearheadError(f"{folder} is a file; name a new folder: clearhead quickstart FOLDER")
    refuse_unusual(folder)
    mark = folder / MARK
    if mark.is_file():
        with mark.open("rb") as file:
            word = file.read(100).strip()
        if word == FINISHED.encode():
            raise ClearheadError(
                f"the tour in {folder} is finished; name a new folder: clearhead quickstart FOLDER"
            )
    elif folder.exists() and any(folder.iterdir()):
        raise ClearheadError(
            f"{folder} is not empty; name a new folder: clearhead quickstart FOLDER"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(mark, "begun\n")


def _execute(stop: Stop, folder: Path) -> tuple[int, bool]:
    """Run the command. Returns its exit code, and whether Ctrl-C was pressed meanwhile."""
    process = start_module(
        "clearhead",
        *stop.arguments,
        folder=folder,
        stdin=None if stop.typed is None else subprocess.PIPE,
        CLEARHEAD_DATA="data",
    )
    try:
        if stop.typed is not None:
            assert process.stdin is not None
            process.stdin.write(f"{stop.typed}\n".encode())
            process.stdin.close()
        return process.wait(), False
    except KeyboardInterrupt:
        # A terminal sends Ctrl-C also to the command, which may still have to finish a checkpoint.
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()
        return process.returncode, True
