"""The command line: `clearhead VERB …`. A verb is a file in this folder, imported when used."""

import argparse
import sys
from importlib import import_module

from clearhead import __version__
from clearhead.errors import ClearheadError, nearest

VERBS = {
    "describe": "a preset's sizes and parameters",
    "doctor": "what is silently wrong in any Transformer",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs one verb. Returns 0, or 2 for an error that is the user's to mend."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(arguments)
    except ClearheadError as error:
        print(f"clearhead: {error}", file=sys.stderr)
        return 2


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if arguments[0] == "--version":
        print(f"clearhead {__version__}")
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        raise ClearheadError(f"there is no verb {verb!r}; {nearest(verb, VERBS)}")
    module = import_module(f"clearhead.cli.{verb}")
    parser = argparse.ArgumentParser(prog=f"clearhead {verb}", description=module.__doc__)
    module.add_arguments(parser)
    return module.run(parser.parse_args(rest))


def _overview() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {what}" for verb, what in VERBS.items())
    return (
        "clearhead: a Transformer you can see through\n\n"
        f"usage: clearhead VERB …\n\n{verbs}\n\n"
        "clearhead VERB --help tells more."
    )
