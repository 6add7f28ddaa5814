"""Finds what is strange about a whole text and would spoil a model, although each of its lines is
valid: an export of a chat, and pairs of which one side is shifted."""

import re
import shlex
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice

from clearhead.config.data import DataConfig
from clearhead.intake.out_of_step import FEWEST_SHIFTED, MOST_LINES, find_shift
from clearhead.intake.sources import Cursor, Reader, find_inputs
from clearhead.intake.unpack import naming, open_bytes

READ_FOR_CHAT = 1 << 18
"""Bytes at the beginning of each file in which lines of a chat are looked for."""
NEARLY_EVERY = 0.8
_DATE = r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}"
_TIME = r"\d{1,2}[:.]\d{2}([:.]\d{2})?(\s?[APap]\.?\s?[Mm]\.?)?"
_CHAT_LINE = re.compile(rf"[\u200e\u200f\ufeff]?\[?{_DATE},?\s{_TIME}\]?( [-–])? [^:]{{1,60}}: ")
_REMOVE = (
    "s/^[^0-9]{0,4}[0-9./-]+,?[^0-9]{1,3}[0-9]{1,2}[:.][0-9:.]+(.{0,3}[AaPp][.]? ?[Mm][.]?)?"
    "[]]?( -| –)? [^:]{1,60}: //"
)
"""Removes what `_CHAT_LINE` finds, also where sed reads bytes and not characters."""


def strange_in(data: DataConfig) -> str:
    """Describe what is strange about the training text; empty if nothing is."""
    if data.task == "pairs":
        return _shift_in(data)
    return _chat_in(data) if data.format == "text" else ""


def _chat_in(data: DataConfig) -> str:
    """Describe an export of a chat, such as WhatsApp's, whose lines begin with a date and a
    name."""
    for files in find_inputs(data, "train"):
        for path in files.paths:
            with ExitStack() as stack, naming(path):
                head = open_bytes(path, stack).data.read(READ_FOR_CHAT).decode("utf-8", "replace")
            lines = [line for line in head.splitlines() if line.strip()]
            n = sum(_CHAT_LINE.match(line) is not None for line in lines)
            if len(lines) > 9 and n >= NEARLY_EVERY * len(lines):
                return (
                    f"{path}: nearly every line begins with a date and a name (a chat export), "
                    f"such as {lines[0][:40]!r}; the model will learn these; remove them first: "
                    f"sed -E {shlex.quote(_REMOVE)} {shlex.quote(str(path))} > messages.txt"
                )
    return ""


def _shift_in(data: DataConfig) -> str:
    whole = replace(data, held_out=0.0, held_out_test=0.0, clean=())
    for files in find_inputs(whole, "train"):
        reader = Reader([files], whole, "train")
        reader.sieve.has_recipe = False  # it is being made
        documents = list(islice(reader.documents(Cursor(), {}), MOST_LINES))
        sources, targets = ([document.texts[side] for document in documents] for side in (0, 1))
        shift = find_shift(sources, targets)
        if shift is None:
            continue
        at = documents[shift.start].place
        names = " and ".join(path.name for path in files.paths)
        end = ""
        if len(documents) - shift.stop > FEWEST_SHIFTED:
            end = f" (until about {documents[shift.stop].place.where})"
        early, late = ("source", "target") if shift.lines > 0 else ("target", "source")
        n = abs(shift.lines)
        return (
            f"{names}: from about {at.where} on, the lines no longer belong together{end}: the "
            f"{late} seems to come {n} {'line' if n == 1 else 'lines'} too late; look for a "
            f"missing line of the {early} there, or for one too many of the {late}"
        )
    return ""
