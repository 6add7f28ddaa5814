"""Labels texts line by line: standard input to standard output, files, or, on a terminal, what you
type. Empty lines stay empty, and the order is kept."""

import argparse
import json
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.cli.folders import Opened, add_folder, open_folder
from clearhead.cli.lines import add_line_arguments, answer_lines, at_least_one, polite, talk
from clearhead.data.batches import labelled_batch
from clearhead.errors import InputError
from clearhead.evaluation.classification import label_probabilities


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    add_line_arguments(parser)
    parser.add_argument(
        "--scores",
        action="store_true",
        help="as text: each label and its probability, by tabs, the likeliest first",
    )
    parser.add_argument(
        "--batch", type=at_least_one, default=32, metavar="N", help="lines that run side by side"
    )


@polite
def run(arguments: argparse.Namespace) -> int:
    classifier = _Classifier(open_folder(arguments.model), arguments)
    if arguments.input is None and sys.stdin.isatty():
        return talk("A line is labelled when you press Enter; Ctrl-D ends.", classifier.show)
    return answer_lines(arguments, classifier)


class _Classifier:
    """Numbered lines into their lines of output."""

    def __init__(self, opened: Opened, arguments: argparse.Namespace) -> None:
        self.opened, self.arguments = opened, arguments
        self.model, self.labels = opened.classifier

    def show(self, number: int, line: str) -> None:
        print("".join(self([(number, line)])), end="", flush=True)

    def __call__(self, chunk: list[tuple[int, str]]) -> list[str]:
        texts = {
            place: self._text(number, line.strip())
            for place, (number, line) in enumerate(chunk)
            if line.strip()
        }
        # Neighbours of one length waste nothing on padding.
        by_length = sorted(texts, key=lambda place: len(texts[place]))
        found: dict[int, list[float]] = {}
        for start in range(0, len(by_length), self.arguments.batch):
            places = by_length[start : start + self.arguments.batch]
            rows = self._probabilities([texts[place] for place in places])
            found |= dict(zip(places, rows))
        return [
            self._written(number, line, found.get(place))
            for place, (number, line) in enumerate(chunk)
        ]

    def _text(self, number: int, line: str) -> NDArray[np.integer]:
        ids, longest = self.opened.source.encode(line), self.model.config.max_length
        if len(ids) + 2 > longest:  # the mask and the end
            raise InputError(
                f"line {number} has {len(ids) + 2} tokens, and the model takes {longest}; "
                "shorten it, or label its parts"
            )
        return np.array([*ids, self.opened.source.eos_id])

    def _probabilities(self, texts: list[NDArray[np.integer]]) -> list[list[float]]:
        ids = list(self.labels.ids.values())
        batch = labelled_batch(
            texts,
            [ids[0]] * len(texts),  # which nobody looks at
            mask_id=self.labels.mask,
            pad_id=self.opened.source.pad_id,
            samples=tuple((number,) for number in range(len(texts))),
        )
        return label_probabilities(self.model, batch, ids).tolist()

    def _written(self, number: int, line: str, row: list[float] | None) -> str:
        pairs = [] if row is None else list(zip(self.labels.ids, row))
        likeliest = sorted(pairs, key=lambda pair: -pair[1])
        if self.arguments.format == "jsonl":
            whole: dict[str, Any] = {
                "line": number,
                "text": line,
                "label": likeliest[0][0] if likeliest else None,
                "probabilities": dict(pairs),
            }
            return json.dumps(whole, ensure_ascii=False) + "\n"
        if self.arguments.scores:
            return "\t".join(f"{label}\t{p:.4f}" for label, p in likeliest) + "\n"
        return (likeliest[0][0] if likeliest else "") + "\n"
