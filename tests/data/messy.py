"""A messy corpus: real sentences, and every kind of defect planted at a known rate."""

import gzip
import random
from pathlib import Path
from typing import NamedTuple

from clearhead.data.equality import same_key
from clearhead.environment import data_folder

RATE = 0.02
N_VALID = 100


class Messy(NamedTuple):
    source: Path
    target: Path
    planted: dict[str, set[int]]
    """Lines, from 1, by kind."""
    valid: tuple[Path, Path]
    n_pairs: int


def _lines(name: str) -> list[str]:
    text = gzip.decompress((data_folder() / name).read_bytes()).decode("utf-8")
    return [line.strip() for line in text.removesuffix("\n").split("\n")]


def german_english(n: int) -> list[tuple[str, str, str]]:
    """Pairs that share no sentence, and a third side in another language."""
    sides = [_lines(f"multi30k/train.{language}.gz") for language in ("de", "en", "fr")]
    return _unique(list(zip(*sides)), n)


def english_chinese(n: int) -> list[tuple[str, str, str]]:
    foreign = _lines("ntrex128/newstest2019-ref.deu.txt.gz")
    pairs = [line.split("\t")[:2] for line in _lines("python_docs_zh_cn/train.tsv.gz")]
    prose = [(en, zh) for en, zh in pairs if len(en) > 40 and "`" not in en and "<" not in en]
    return _unique([(*pair, foreign[k % len(foreign)]) for k, pair in enumerate(prose)], n)


def _unique(pairs: list[tuple[str, str, str]], n: int) -> list[tuple[str, str, str]]:
    random.Random(1).shuffle(pairs)
    seen: set[int] = set()
    found: list[tuple[str, str, str]] = []
    for pair in pairs:
        keys = {same_key(pair[0]), same_key(pair[1])}
        if len(keys) == 2 and seen.isdisjoint(keys) and min(map(len, pair)) >= 8:
            seen |= keys
            found.append(pair)
    return found[:n]


def write_messy(folder: Path, pairs: list[tuple[str, str, str]]) -> Messy:
    """The lines are in a random order; a pair has one defect at most."""
    draw = random.Random(2)
    held, pairs = pairs[:N_VALID], pairs[N_VALID:]
    each = round(RATE * len(pairs))
    kinds = ("copy", "swapped", "language", "markup", "length", "duplicate", "overlap")
    defects = {k * each + number: kind for k, kind in enumerate(kinds) for number in range(each)}
    made: list[tuple[str, str, str | None]] = []
    for number, (source, target, foreign) in enumerate(pairs):
        kind, later = defects.get(number), pairs[-1 - number]
        match kind:
            case "copy":
                target = source if number % 2 else source.upper()
            case "swapped":
                source, target = target, source
            case "language":
                source, target = (foreign, target) if number % 2 else (source, foreign)
            case "markup":
                source, target = _break(number, source, target)
            case "length":
                others, length = iter(pairs[::-1]), len(target)
                target = target if number % 2 else target[: max(1, length // 12)]
                while number % 2 and len(target) < 10 * length:
                    target = f"{target} {next(others)[1]}"
            case "duplicate":
                made.append((later[0].upper(), f"{later[1]} !", kind))
                continue
            case "overlap":
                source, target, _ = held[number % N_VALID]
        made.append((source, target, kind))
    # Of two that are equal, the second is the duplicate: after its twin.
    first = [pair for pair in made if pair[2] != "duplicate"]
    draw.shuffle(first)
    made = first + [pair for pair in made if pair[2] == "duplicate"]
    planted: dict[str, set[int]] = {kind: set() for kind in kinds}
    for line, (_, _, kind) in enumerate(made, 1):
        if kind is not None:
            planted[kind].add(line)
    files = [folder / name for name in ("train.source", "train.target")]
    valid = (folder / "valid.source", folder / "valid.target")
    for side, (file, other) in enumerate(zip(files, valid)):
        file.write_text("".join(f"{pair[side]}\n" for pair in made), encoding="utf-8")
        other.write_text("".join(f"{pair[side]}\n" for pair in held), encoding="utf-8")
    return Messy(files[0], files[1], planted, valid, len(made))


def _break(number: int, source: str, target: str) -> tuple[str, str]:
    match number % 5:
        case 0:
            return f"<b>{source}</b>", f"<b>{target}"
        case 1:
            return source, f'{target} <a href="page'
        case 2:
            return f"<i>{source}</i>", f"<i>{target}</b>"
        case 3:
            return source, f"{target} &amp;quot;"
        case _:
            return f"<p>{source}</p>", target
