"""Translates line by line: from standard input to standard output, from file to file, or as you
type. One output line per input line, in the same order; an empty line stays empty. A catalogue (PO,
XLIFF) is filled as a whole."""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.cells import cell_len

from clearhead.api.languages import warn_of_other_language
from clearhead.api.results import Output
from clearhead.api.text_model import TextModel, find_translations
from clearhead.api.trained_run import TrainedRun
from clearhead.cli.calling import options_of
from clearhead.cli.engines import add_engine_arguments, add_search_arguments
from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.lines import (
    add_line_arguments,
    answer_lines,
    as_json,
    at_least_one,
    is_typed,
    names_of,
    talk,
)
from clearhead.cli.options import add_option, add_options
from clearhead.cli.terminal import one_line, visible
from clearhead.config.options import CatalogueOptions, NBestOptions
from clearhead.errors import ClearheadError, DataError
from clearhead.inspection.attention import AttentionMap

CALLS = TextModel.translations
SAY_WHAT = "the text comes through a pipe or from a file: echo TEXT | clearhead translate MODEL"
INSTEAD = dict.fromkeys(
    ("--temperature", "--top-k", "--top-p", "--min-p", "--seed", "--greedy"),
    "a translator searches for the best translation, with --beam (--beam 1 is greedy)",
)
"""Options of another command that people expect here, and what to do instead."""
_OF_CATALOGUES = ("memory", "pieces", "leave_below")
_LINE_OPTIONS = {
    "input": None,
    "format": "text",
    "n_best": NBestOptions.n_best,
    "scores": False,
    "split": None,
    "details": False,
    "attention": None,
}
"""The options that are for lines, and their defaults."""
ENOUGH_CHARACTERS = 4000
"""Characters that tell in which language a file is; the whole of a shorter file is read first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    add_line_arguments(parser)
    add_search_arguments(parser)
    add_options(parser, NBestOptions, "n_best", types={"n_best": at_least_one})
    parser.add_argument(
        "--scores",
        action="store_true",
        help="as text, and always with --n-best above 1: line number, score and translation, "
        "separated by tabs",
    )
    add_options(parser, NBestOptions, "too_long", "split", metavars={"split": "PAIR"})
    add_option(parser, NBestOptions, "glossary", type=Path, metavar="FILE")
    add_engine_arguments(parser)
    _add_catalogue_arguments(parser)
    parser.add_argument(
        "--details",
        action="store_true",
        help=(
            "print on standard error, for each line, the confidence (of a calibrated model), how "
            "often the training text of the run contains its pieces, and which training pairs "
            "are most similar"
        ),
    )
    parser.add_argument(
        "--attention",
        type=_svg,
        metavar="FILE.svg",
        help="draw the cross-attention of the first translation to this file (and, if it fits, to "
        "the terminal)",
    )
    parser.add_argument(
        "--layer",
        type=int,
        metavar="N",
        help="the layer that --attention draws, from 0 (default: the last)",
    )


def _add_catalogue_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("catalogues")
    group.add_argument(
        "--catalogue",
        type=Path,
        metavar="FILE",
        help=(
            "fill the open entries of this PO or XLIFF file, in its place or into --output; new "
            "translations are marked as fuzzy, translations by people stay"
        ),
    )
    add_option(group, CatalogueOptions, "memory", type=Path, nargs="+", metavar="FILE")
    add_options(group, CatalogueOptions, "pieces", "leave_below")
    group.set_defaults(**{name: getattr(CatalogueOptions, name) for name in _OF_CATALOGUES})


def _svg(text: str) -> Path:
    if not text.endswith(".svg"):
        raise argparse.ArgumentTypeError(
            f"{text!r} does not end in .svg; the picture is an SVG file"
        )
    return Path(text)


def run(namespace: argparse.Namespace) -> int:
    _check_options(namespace)
    model = open_model(namespace)
    return (
        _translate_lines(namespace, model)
        if namespace.catalogue is None
        else _fill(namespace, model)
    )


def _check_options(namespace: argparse.Namespace) -> None:
    """Raises for options that do not go together, before a model is opened."""
    if namespace.attention is not None and namespace.engine != "clearhead":
        raise ClearheadError("--attention needs the engine clearhead; leave --engine out")
    if namespace.attention is None and namespace.layer is not None:
        raise ClearheadError("--layer belongs to --attention; leave it out, or add --attention")
    if namespace.attention is not None and namespace.split is not None:
        raise ClearheadError("--attention draws one sentence; leave --split out")
    if namespace.catalogue is not None:
        for name, default in _LINE_OPTIONS.items():
            if getattr(namespace, name) != default:
                raise ClearheadError(f"{_flag(name)} is for lines; leave it out with --catalogue")
    else:
        for name in _OF_CATALOGUES:
            if getattr(namespace, name):
                raise ClearheadError(
                    f"{_flag(name)} belongs to --catalogue; leave it out, or add that"
                )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_model(namespace: argparse.Namespace, model: TextModel) -> None:
    """Raises for options that this model cannot serve."""
    if namespace.attention is not None and model.model.config.family != "encoder-decoder":
        raise ClearheadError(
            "--attention draws what a target looks at in its source, but this model is a decoder; "
            "leave --attention out"
        )
    if namespace.details and model.calibration is None and not isinstance(model, TrainedRun):
        raise ClearheadError(
            f"--details needs a run, whose training text is known, or a calibrated model, but "
            f"{namespace.model} is only a model; name the run, calibrate the model (clearhead "
            "calibrate), or leave --details out"
        )


def _translate_lines(namespace: argparse.Namespace, model: TextModel) -> int:
    _check_model(namespace, model)
    translator = _LineTranslator(namespace, model)
    find_translations(model, [], translator.options)  # raises before a line is read
    if namespace.n_best > namespace.beam:
        wider = f"searching with --beam {namespace.n_best} instead of {namespace.beam}"
        print(f"note: --n-best {namespace.n_best} needs as wide a beam; {wider}", file=sys.stderr)
    if namespace.details and model.calibration is None:
        missing = (
            "no confidence, because the model is not calibrated; calibrate it with: "
            "clearhead calibrate"
        )
        print(f"{missing} {namespace.model}", file=sys.stderr)
    if is_typed(namespace):
        greeting = "A line is translated when you press Enter; Ctrl-D ends."
        return talk(greeting, lambda *line: print(*translator([line]), sep="", end="", flush=True))
    status = answer_lines(namespace, translator)
    if not translator.is_language_checked:
        warn_of_other_language(translator.first_lines, model.name)
    if namespace.glossary is not None:
        print(_of_glossary(translator.n_terms, translator.n_terms_used), file=sys.stderr)
    return status


class _LineTranslator:
    """Translates chunk after chunk, draws the first translation, and counts the terms that
    translations use."""

    def __init__(self, namespace: argparse.Namespace, model: TextModel) -> None:
        self.namespace, self.model = namespace, model
        self.options = options_of(namespace, NBestOptions)
        self.picture: Path | None = namespace.attention
        """The file into which the first translation is drawn; None once it has been drawn."""
        self.n_terms = self.n_terms_used = 0
        self.first_lines: list[str] = []
        """The lines whose language is compared with the model's."""
        self.is_language_checked = False

    def __call__(self, chunk: list[tuple[int, str]]) -> list[str]:
        """Return the answer to each of the numbered lines."""
        lines = [line for _, line in chunk]
        self._check_language(lines)
        answers = find_translations(
            self.model, lines, self.options, names_of(chunk), n_best=self.options.n_best
        )
        for (number, line), outputs in zip(chunk, answers):
            if outputs:
                self._draw_once(line, outputs[0])
                self.n_terms += len(outputs[0].terms)
                self.n_terms_used += sum(term.is_used for term in outputs[0].terms)
            if self.namespace.details and line.strip():
                for detail in _details(self.model, line, outputs):
                    print(visible(f"line {number}: {detail}"), file=sys.stderr)
        return [
            _shown(self.namespace, number, line, outputs)
            for (number, line), outputs in zip(chunk, answers)
        ]

    def _check_language(self, lines: list[str]) -> None:
        """Warn once, as soon as there are enough lines to tell their language."""
        if self.is_language_checked:
            return
        self.first_lines += lines
        if sum(map(len, self.first_lines)) > ENOUGH_CHARACTERS:
            warn_of_other_language(self.first_lines, self.model.name)
            self.is_language_checked = True

    def _draw_once(self, line: str, best: Output) -> None:
        if self.picture is not None:
            layer = self.namespace.layer
            attention = self.model.attention(line, best.tokens, layer=layer, too_long="cut")
            _draw(self.picture, attention)
            self.picture = None


def _of_glossary(n_terms: int, n_used: int) -> str:
    return f"glossary: of {n_terms:,} terms in the sources, {n_used:,} are in the translations"


def _details(model: TextModel, line: str, outputs: list[Output]) -> Iterator[str]:
    if outputs and outputs[0].confidence is not None:
        confidence = outputs[0].confidence
        yield f"confidence {confidence:.2f}: translations like this have a chrF++ of about " + (
            f"{100 * confidence:.0f} on held-out text"
        )
    if isinstance(model, TrainedRun):
        yield str(model.learnt_from(line))


def _fill(namespace: argparse.Namespace, model: TextModel) -> int:
    out = namespace.output or namespace.catalogue
    options = asdict(options_of(namespace, CatalogueOptions))
    filled = model.fill_catalogue(namespace.catalogue, out, **options)
    print(
        f"{out}: of {filled.entries:,} entries, {filled.kept:,} stay as they were, "
        f"{filled.remembered:,} are from the memory, {filled.translated:,} are translated, "
        f"{len(filled.open) + len(filled.unsure):,} stay open"
    )
    if filled.unsure:
        print(f"{len(filled.unsure):,} of these because their confidence is too low")
    if filled.again:
        print(
            f"{filled.again:,} texts were decoded again by clearhead: {namespace.engine} had lost "
            "a placeholder or a tag"
        )
    if namespace.glossary is not None:
        print(_of_glossary(filled.terms, filled.terms_used))
    if filled.left_out:
        print(
            f"{filled.left_out:,} more are left out: the header has no Plural-Forms (PO); add it, "
            r'for Chinese: "Plural-Forms: nplurals=1; plural=0;\n"'
        )
    return 0


def _draw(path: Path, attention: AttentionMap) -> None:
    try:
        path.write_text(attention.svg(), encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror}); name another file: --attention"
        ) from None
    # To standard error: standard output has one line per input line.
    drawn = str(attention)
    if max(map(cell_len, drawn.splitlines())) <= shutil.get_terminal_size().columns:
        shown = f"{attention.title}: rows generated, columns source\n{drawn}"
        print(visible(shown), file=sys.stderr)
    print(f"drawn: {path}", file=sys.stderr)


def _shown(namespace: argparse.Namespace, number: int, line: str, outputs: list[Output]) -> str:
    if namespace.format == "jsonl":
        shown = [as_json(output) for output in outputs]
        for record, output in zip(shown, outputs):
            if namespace.details and output.confidence is not None:
                record["confidence"] = output.confidence
            if namespace.glossary is not None:
                record["terms"] = [
                    {"source": term.source, "target": term.target, "is_used": is_used}
                    for term, is_used in output.terms
                ]
        whole = {"line": number, "source": line, "translations": shown}
        return json.dumps(whole, ensure_ascii=False) + "\n"
    if namespace.scores or namespace.n_best > 1:
        return "".join(
            f"{number}\t{output.score:.4f}\t{one_line(output.text)}\n" for output in outputs
        )
    return (one_line(outputs[0].text) if outputs else "") + "\n"
