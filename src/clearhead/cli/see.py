"""Shows one run of a model from inside: attention, layers, candidates, the beam search, and every
tensor's shape. With --html as one page that needs no network; without, a summary here."""

import argparse
import base64
from pathlib import Path

import numpy as np
import torch

from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.lines import at_least_one
from clearhead.decoding.opening import Opened
from clearhead.errors import DataError
from clearhead.inspection.look import Subject
from clearhead.inspection.page import page
from clearhead.inspection.pictures import heatmap_text
from clearhead.inspection.seeing import see


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    parser.add_argument("text", help="what the model is given")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the page there")
    parser.add_argument(
        "--target", metavar="TEXT", help="show this text's way through the model, not its own"
    )
    parser.add_argument(
        "--beam",
        type=at_least_one,
        metavar="N",
        help="width of the search (default: 4 where a source is read, else 1, which is greedy)",
    )
    parser.add_argument("--max-new", type=at_least_one, metavar="N", help="tokens to generate")
    parser.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="above 0: draw the tokens"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--language", choices=["en", "zh"], default="en", help="of the page")


def run(arguments: argparse.Namespace) -> int:
    document = see(
        subject_of(open_model(arguments).opened, _name(arguments.model)),
        arguments.text,
        target=arguments.target,
        beam=arguments.beam,
        max_new=arguments.max_new,
        temperature=arguments.temperature,
        seed=arguments.seed,
        language=arguments.language,
    )
    if arguments.html is None:
        print(_summary(document))
        print("The whole picture: the same command with --html FILE.html")
        return 0
    try:
        size = arguments.html.write_text(page(document), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{arguments.html} cannot be written ({error.strerror})") from None
    print(f"wrote {arguments.html} ({size / 1000:,.0f} kB); open it in a browser, online or not")
    return 0


def _name(folder: Path) -> str:
    """Of the run, where its folder is called `model` like every run's."""
    folder = folder.absolute()
    return folder.parent.name if folder.name == "model" else folder.name


def subject_of(opened: Opened, name: str) -> Subject:
    return Subject(
        name, opened.model, opened.source, opened.target, opened.ids.decoder_start, opened.ids.eos
    )


def _summary(document: dict) -> str:
    """The sharpest head of the last kind of attention, as text."""
    kind = list(document["attention"])[-1]
    layer, head = document["suggested"][kind]
    stored = document["attention"][kind]
    dtype, top = ("<u2", 65535) if stored["dtype"] == "u16" else ("u1", 255)
    values = np.frombuffer(base64.b64decode(stored["base64"]), dtype).reshape(stored["shape"])
    tokens = document["tokens"]
    rows = [token["text"] for token in tokens["source" if kind == "self" else "written"]]
    columns = [token["text"] for token in tokens["fed" if kind == "causal" else "source"]]
    matrix = torch.from_numpy(values[layer, head].astype("float32") / top)
    title = f"{kind} attention, layer {layer}, head {head}: rows look at columns"
    return f"{title}\n{heatmap_text(matrix, rows, columns)}"
