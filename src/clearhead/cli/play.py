"""Opens the page of `clearhead see` live, on this machine only: change the text, the search and the
temperature, switch heads and sublayers off, and move over the checkpoints of a run."""

import argparse
from contextlib import suppress
from functools import partial
from pathlib import Path

from clearhead.api.text_model import TextModel
from clearhead.api.trained_run import TrainedRun
from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.lines import at_least_one
from clearhead.errors import ClearheadError
from clearhead.inspection.decode_for_page import subject_of
from clearhead.interop.folders import has_file, read_text
from clearhead.interop.model_folder import model_folder_of

EXAMPLES = "examples.txt"  # beside a model: a text a line, the first of which is shown first


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    parser.add_argument(
        "text", nargs="?", help=f"the text to show first (default: the first line of {EXAMPLES})"
    )
    parser.add_argument("--beam", type=at_least_one, metavar="N", help="width of the beam search")
    parser.add_argument("--max-new", type=at_least_one, metavar="N", help="tokens to generate")
    parser.add_argument(
        "--language", choices=["en", "zh"], default="en", help="language of the page"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="another address of this machine (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port to listen on (default: 0, any free port)"
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        from clearhead.serving.app import listen, serve
        from clearhead.serving.asking import LookRequest
        from clearhead.serving.live import LiveModel, Snapshot
    except ModuleNotFoundError as error:
        raise ClearheadError(
            f"the live page needs {error.name}; install it with: pip install 'clearhead[serve]'"
        ) from None
    model = open_model(arguments)
    text = arguments.text or _example(model, arguments.model)
    first = LookRequest(
        text=text,
        beam=arguments.beam,
        max_new=arguments.max_new,
        language=arguments.language,
    )
    snapshots: list[Snapshot] = []
    if isinstance(model, TrainedRun):
        snapshots = [Snapshot(n, partial(model.weights_at, n)) for n in model.checkpoint_steps]
    live = LiveModel(subject_of(model.opened, model.name), snapshots)
    address = listen(arguments.host, arguments.port)
    print(f"open in a browser: {address.url}\nCtrl-C ends it", flush=True)
    with suppress(KeyboardInterrupt):
        serve(live, first, address)
    return 0


def _example(model: TextModel, named: Path) -> str:
    folder = model_folder_of(model.folder)
    if has_file(folder, EXAMPLES):
        for line in read_text(folder, EXAMPLES).splitlines():
            if line.strip():
                return line
    raise ClearheadError(
        f"{named} has no {EXAMPLES}, so there is nothing to show first; give a text: "
        f"clearhead play {named} TEXT"
    )
