"""The command line: `clearhead VERB …`. Each command has a file in this folder, which is imported
when the command is used."""

import errno
import io
import logging
import os
import signal
import sys
from contextlib import nullcontext
from importlib import import_module
from keyword import iskeyword

from clearhead import __version__
from clearhead.cli.arguments import Arguments
from clearhead.cli.spelling import as_flags, know_options
from clearhead.cli.terminal import discard, output_may_close, text_only_terminal, visible
from clearhead.errors import ClearheadError, Message, closest, nearest

VERBS = {
    "calibrate": "make a translator's confidence predict its chrF++",
    "classify": "a label for each line",
    "data": "what the model will see; public corpora: clearhead data get NAME",
    "describe": "a recipe with every key explained, or a preset's sizes",
    "diff": "the line at which a port departs from its reference, and why",
    "doctor": "silent bugs in any Transformer",
    "evaluate": "BLEU, chrF++, perplexity or accuracy of a model",
    "export": "a model folder that other software opens",
    "generate": "a continuation of your text",
    "import": "a model folder from other software's",
    "learn": "exercises that check themselves, in English and Chinese",
    "new": "a recipe for your own text, sized to it and to your time",
    "plan": "memory, time and cost of a run on many accelerators",
    "play": "the page of see, live: edit the text, switch heads off",
    "prepare": "text into token files",
    "quickstart": "a tour of three minutes, from text to a picture",
    "runs": "the runs in a folder, and their curves",
    "score": "how likely a model finds given texts",
    "see": "one run of a model as a page: attention, layers, beams",
    "selftest": "whether this machine's device computes what it should",
    "serve": "models over HTTP: LibreTranslate's and OpenAI's APIs",
    "study": "variants compared over seeds, at an equal budget, with intervals",
    "train": "a model from a recipe; run the same command to resume",
    "translate": "lines into another language",
}

WRITE_FILES = ("prepare", "study", "train")
"""Commands that run for a long time and produce files. They continue when their output is no longer
read."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns 0, 2 after a user error, or 130 after Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:  # closed before the start: `>&-`, or a service
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    log = logging.getLogger("clearhead")
    if not any(isinstance(handler, _ShowWarnings) for handler in log.handlers):
        log.addHandler(_ShowWarnings(logging.WARNING))
    # The code page of a pipe on Windows lacks ✓ and Chinese: such characters are written as
    # escapes.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    outlives = arguments[:1] and arguments[0] in WRITE_FILES
    with output_may_close() if outlives else nullcontext(), text_only_terminal():
        return _run_to_its_end(arguments)


def _run_to_its_end(arguments: list[str]) -> int:
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except ClearheadError as error:
        print(f"clearhead: {visible(as_flags(error.message))}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        remedy = "give fewer or shorter texts, a smaller batch or a smaller model"
        print(f"clearhead: there is not enough memory; {remedy}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output has closed it (`| head`)
        discard(sys.stdout)
        return 128 + 13  # the code that shells report after SIGPIPE, which Windows lacks
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not full and error.filename is None:
            raise
        reason = f"{error.filename} cannot be used ({error.strerror}); check the path"
        if full:
            where = f" ({error.filename})" if error.filename else ""
            reason = f"the disk is full{where}; free some space and run again"
            if error.filename is None:
                discard(sys.stdout)  # otherwise, Python would flush it once more
        print(f"clearhead: {visible(reason)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("clearhead: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


class _ShowWarnings(logging.Handler):
    """Shows the library's warnings in the same form as errors."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.msg if isinstance(record.msg, Message) else record.getMessage()
        print(f"clearhead: {visible(as_flags(text))}", file=sys.stderr)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if arguments[0] == "--version":
        print(f"clearhead {__version__}")
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        raise ClearheadError(f"there is no command {verb!r}; {nearest(verb, VERBS)}")
    # A keyword of Python cannot name a module, so `import` is in import_.py.
    module = import_module(f"clearhead.cli.{verb}_" if iskeyword(verb) else f"clearhead.cli.{verb}")
    parser = Arguments(prog=f"clearhead {verb}", description=module.__doc__, allow_abbrev=False)
    module.add_arguments(parser)
    know_options(parser)
    if hasattr(module, "CALLS"):
        from clearhead.cli.calling import fill_defaults

        fill_defaults(parser, module.CALLS)
    namespace, unknown = parser.parse_known_args(rest)
    if unknown:
        options = [option for action in parser._actions for option in action.option_strings]
        word = unknown[0].split("=")[0]
        remedy = _remedy(word, options) or f"see clearhead {verb} --help"
        if not word.startswith("-") and hasattr(module, "SAY_WHAT"):
            remedy = module.SAY_WHAT
        remedy = getattr(module, "INSTEAD", {}).get(word, remedy)
        raise ClearheadError(f"clearhead {verb} does not take {word!r}; {remedy}")
    return module.run(namespace)


def _remedy(word: str, options: list[str]) -> str | None:
    """Return what to write instead of an option that does not exist, if there is a near one."""
    # help does not need it
    from clearhead.config.usual_names import LIKE_ENOUGH, OPTIONS, remedy_for_key

    keys = [option[2:] for option in options if "." in option]
    plain = [option for option in options if "." not in option]
    if not word.startswith("-"):
        return None
    if "." not in word and (close := closest(word, plain, LIKE_ENOUGH)):
        return f"did you mean {close!r}?"
    meant = "--" + OPTIONS.get(word.lstrip("-").replace("-", "_"), "").replace("_", "-")
    if not keys and meant in plain:
        return f"did you mean {meant!r}?"
    return remedy_for_key(word.lstrip("-"), keys, before="--") if keys else None


def _overview() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {what}" for verb, what in VERBS.items())
    return (
        "clearhead: a Transformer you can see through\n\n"
        f"usage: clearhead VERB …\n\n{verbs}\n\n"
        "New here? Run: clearhead quickstart. Help on a verb: clearhead VERB --help"
    )
