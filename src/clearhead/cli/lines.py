"""Reads lines and writes one output line per input line, for all commands on text.

Lines are processed as they arrive. Waiting lines are processed together, in chunks that are sorted
by length; a single line is answered at once. The output keeps the order of the input.
"""

import argparse
import gzip
import os
import queue
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from clearhead.api.results import Output
from clearhead.cli.console import TextConsole
from clearhead.cli.spelling import as_flags
from clearhead.cli.terminal import visible
from clearhead.errors import DataError, InputError
from clearhead.intake.formats import BYTE_ORDER_MARK
from clearhead.intake.missing import no_such_file
from clearhead.intake.other_formats import catalogue_of
from clearhead.intake.recognise import HEAD, check_encoding, not_utf_8
from clearhead.intake.unpack import MAX_RECORD

STANDARD_INPUT = "standard input"
CHUNK = 512
"""The highest number of lines that are sorted by length together."""


def add_line_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where lines are read and written, and in which format."""
    parser.add_argument(
        "--input", type=Path, metavar="FILE", help="read lines from here (default: standard input)"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write here (default: standard output)"
    )
    parser.add_argument(
        "--format",
        choices=["text", "jsonl"],
        default="text",
        help="text: one output line per input line (default); jsonl: also scores, tokens and "
        "their log-probabilities, as JSON",
    )


def read_lines(arguments: argparse.Namespace) -> Iterator[list[tuple[int, str]]]:
    """Read chunks of numbered lines, without line ends. A line that is not UTF-8 is an error that
    names the line; earlier lines have been answered by then."""
    if arguments.input is None:
        yield from _chunks(_unbuffered_lines(sys.stdin.buffer), None)
        return
    try:
        file = arguments.input.open("rb")
    except FileNotFoundError:
        raise no_such_file(arguments.input) from None
    except OSError as error:
        raise DataError(
            f"{arguments.input} cannot be read ({error.strerror}); check the path"
        ) from None
    with file:
        packed = arguments.input.suffix == ".gz"
        lines = _packed_lines(file) if packed else _unbuffered_lines(file)
        yield from _chunks(lines, arguments.input)


_Waiting = queue.Queue[bytes | Exception | None]
"""Lines, and then None for their end or what went wrong."""


def _read_ahead(lines: Iterable[bytes], waiting: _Waiting) -> None:
    try:
        for line in lines:
            waiting.put(line)
        waiting.put(None)
    except Exception as error:  # whatever it is, the other thread waits for it
        waiting.put(error)


def _chunks(lines: Iterable[bytes], path: Path | None) -> Iterator[list[tuple[int, str]]]:
    name = STANDARD_INPUT if path is None else str(path)
    waiting: _Waiting = queue.Queue(maxsize=4 * CHUNK)
    threading.Thread(target=_read_ahead, args=(lines, waiting), daemon=True).start()
    number, error, ended = 0, None, False
    while not ended and error is None:
        chunk: list[tuple[int, str]] = []
        line = waiting.get()
        while True:
            if line is None:
                ended = True
                break
            if isinstance(line, MemoryError):
                error = line
                break
            if isinstance(line, Exception):
                error = DataError(f"{name} cannot be read to its end ({line}); is it damaged?")
                break
            number += 1
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)  # training does the same
            try:
                chunk.append((number, line.decode("utf-8").rstrip("\r\n")))
            except UnicodeDecodeError as wrong:
                where = f"line {number}: byte {wrong.start + 1} (0x{line[wrong.start]:02x})"
                if path is None:
                    error = DataError(
                        f"{STANDARD_INPUT}, {where} is not UTF-8; convert the text first: iconv -f "
                        "ENCODING -t UTF-8"
                    )
                else:
                    error = not_utf_8(path, line, where)
                break
            if len(chunk) == CHUNK:
                break
            try:
                line = waiting.get_nowait()
            except queue.Empty:
                break
        if chunk:
            yield chunk
    if error is not None:
        raise error


def _packed_lines(file: BinaryIO) -> Iterator[bytes]:
    """Read the lines of a packed file. A kilobyte of gzip can hold a megabyte of text, so a line
    may only take memory in proportion to the file, or up to a limit."""
    with gzip.GzipFile(fileobj=file) as unpacked:
        while line := unpacked.readline(MAX_RECORD + 1):
            if len(line) > MAX_RECORD:
                raise ValueError(f"a line has more than {MAX_RECORD:,} bytes")
            yield line


def _unbuffered_lines(file: BinaryIO) -> Iterator[bytes]:
    """Read lines without a buffered reader. Such a reader holds a lock while it waits, so Python
    could not end after Ctrl-C."""
    try:
        descriptor = file.fileno()
    except OSError:  # which is not a file of the operating system
        yield from file
        return
    begun: list[bytes] = []  # joined once: a long line comes in thousands of pieces
    while piece := os.read(descriptor, 2**16):
        rest, *begins = piece.split(b"\n")
        begun.append(rest)
        for begin in begins:
            yield b"".join(begun) + b"\n"
            begun = [begin]
    if last := b"".join(begun):
        yield last


def _check_files(arguments: argparse.Namespace) -> None:
    """Check the files before the output file is emptied."""
    if arguments.input is None:
        if arguments.output is not None and _is_standard_input(arguments.output):
            raise DataError(f"--output {arguments.output} is the input itself; name another file")
        return
    if not arguments.input.exists():
        raise no_such_file(arguments.input)
    if arguments.input.is_file() or arguments.input.is_dir():  # opening a pipe would wait
        try:
            with arguments.input.open("rb") as file:
                head = file.read(HEAD)
            _refuse_catalogue(arguments.input, head)
            if arguments.input.suffix != ".gz":
                check_encoding(arguments.input, head)
        except OSError as error:
            raise DataError(
                f"{arguments.input} cannot be read ({error.strerror}); check --input"
            ) from None
    out = arguments.output
    if out is not None and out.exists() and out.samefile(arguments.input):
        raise DataError(f"--output {out} is the input itself; name another file")


def _refuse_catalogue(path: Path, head: bytes) -> None:
    other = catalogue_of(path, head)
    if other is not None:
        first = f"{other.command}, then " if other.command else ""
        raise DataError(
            f"{path} is {other.what}, whose lines are not sentences: the output would be broken; "
            f"{first}have it filled: clearhead translate MODEL --catalogue "
            f"{shlex.quote(str(other.catalogue))}"
        )


def _is_standard_input(path: Path) -> bool:
    try:
        return path.exists() and os.path.samestat(os.fstat(sys.stdin.fileno()), path.stat())
    except (OSError, ValueError, AttributeError):  # it is closed, or is no file
        return False


@contextmanager
def opened_output(arguments: argparse.Namespace) -> Iterator[TextIO]:
    """Open the file of --output, or standard output."""
    if arguments.output is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")  # pyright: ignore
        yield sys.stdout
        return
    try:
        file = arguments.output.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(
            f"{arguments.output} cannot be written ({error.strerror}); name another file: --output"
        ) from None
    with file:
        yield file


def _count_lines(path: Path | None) -> int | None:
    """Count the lines of a file. Returns None for a packed file, which would have to be
    unpacked."""
    if path is None or not path.is_file() or path.suffix == ".gz":
        return None
    with path.open("rb") as file:
        return sum(1 for _ in file)


class Bar:
    """Shows on a terminal how many lines are finished, if the output goes to a file."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        console = TextConsole(stderr=True)
        quiet = arguments.output is None or not console.is_terminal
        self.total = None if quiet else _count_lines(arguments.input)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=quiet,
        )

    def __enter__(self) -> "Bar":
        self.bars.start()
        self.task = self.bars.add_task("lines", total=self.total)
        return self

    def __exit__(self, *_: Any) -> None:
        self.bars.stop()

    def advance(self, n: int) -> None:
        """Count this many more lines as finished."""
        self.bars.update(self.task, advance=n)


def at_least_one(text: str) -> int:
    """The type of an option that takes a whole number of at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def is_typed(arguments: argparse.Namespace) -> bool:
    """Tell whether lines are typed on a terminal, where each answer is shown at once."""
    return arguments.input is None and arguments.output is None and sys.stdin.isatty()


def answer_lines(
    arguments: argparse.Namespace, answer: Callable[[list[tuple[int, str]]], list[str]]
) -> int:
    """Write the answer to every line, in the order of the lines, chunk by chunk."""
    _check_files(arguments)
    with opened_output(arguments) as out, Bar(arguments) as bar:
        for chunk in read_lines(arguments):
            for text in answer(chunk):
                out.write(text)
            out.flush()
            bar.advance(len(chunk))
    return 0


def names_of(chunk: list[tuple[int, str]]) -> list[str]:
    """Return the names of the lines for messages."""
    return [f"line {number}" for number, _ in chunk]


def talk(greeting: str, answer: Callable[[int, str], None]) -> int:
    """Answer lines that are typed on a terminal, one at a time."""
    print(greeting, file=sys.stderr)
    number = 0
    while True:
        try:
            if sys.stdout.isatty():
                line = input("> ")
            else:  # a pipe gets only the answers
                print("> ", end="", file=sys.stderr, flush=True)
                line = input()
        except EOFError:
            print(file=sys.stderr)
            return 0
        except UnicodeDecodeError:
            print("clearhead: this line is not UTF-8; type it again", file=sys.stderr)
            continue
        number += 1
        try:
            answer(number, line)
        except InputError as error:  # an error concerns only this line
            print(f"clearhead: {visible(as_flags(error.message))}", file=sys.stderr)


def as_json(output: Output) -> dict[str, Any]:
    """Return an output with all its details as JSON."""
    return {
        "text": output.text,
        "score": output.score,
        "stop": output.stop,
        "tokens": output.tokens,
        "log_probs": output.log_probs,
    }
