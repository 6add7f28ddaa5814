"""Text that is damaged the way people's files are, with a record of what was done to which line.

Written from the kinds of defects alone, and committed before its first run: nothing here knows
how the package finds them. Where a detector misses, the detector is changed, not this file.
"""

import gzip
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Pair = tuple[str, str]


@dataclass(frozen=True)
class Line:
    """A pair of a file, what was done to it (None: nothing), and in which way."""

    source: str
    target: str
    kind: str | None = None
    way: str = ""


@dataclass(frozen=True)
class Corpus:
    """Clean pairs, and sentences in languages that are neither of the two."""

    name: str
    pairs: list[Pair]
    foreign: list[Sequence[str]]
    """Each a text of another language; if it is as long as the pairs, line n is a translation of
    pair n, as in the wrong column of an export with many languages."""
    held_out: list[Pair]


def words(text: str) -> list[str]:
    """Words where the script has spaces, else characters."""
    return text.split() if " " in text.strip() else list(text.strip())


def joined(parts: Sequence[str], like: str) -> str:
    return (" " if " " in like.strip() else "").join(parts)


# Ways of each kind: each takes the clean pair and returns the damaged one, or None if this pair is
# no place for it.


def untranslated(pair: Pair, rng: random.Random) -> tuple[str, str, str]:
    """The translator skipped the line: the source stands on both sides, perhaps retyped."""
    source = pair[0] if rng.random() < 0.7 else pair[1]
    way = rng.choice(["exact", "exact", "exact", "space", "full stop", "case"])
    copy = {
        "exact": source,
        "space": source + " \u00a0",
        "full stop": source.rstrip(".。!！?？") + ("" if source[-1] in ".。!！?？" else "."),
        "case": source.lower() if source.lower() != source else source.upper(),
    }[way]
    return source, copy, way


def exchanged(pair: Pair, rng: random.Random) -> tuple[str, str, str]:
    return pair[1], pair[0], "sides exchanged"


def with_markup(text: str, rng: random.Random, opening: str, closing: str) -> str:
    parts = words(text)
    at = rng.randrange(len(parts))
    parts[at] = opening + parts[at] + closing
    return joined(parts, text)


def broken_markup(pair: Pair, rng: random.Random) -> tuple[str, str, str]:
    tag = rng.choice(["b", "i", "em", "strong", "span", "p", "a"])
    side = rng.randrange(2)
    texts = list(pair)
    way = rng.choice(["opened", "closed", "cut", "half lost", "spaced", "escaped twice", "crossed"])
    match way:
        case "opened":
            texts[side] = with_markup(texts[side], rng, f"<{tag}>", "")
        case "closed":
            texts[side] = with_markup(texts[side], rng, "", f"</{tag}>")
        case "cut":
            texts[side] += rng.choice([' <a href="http://example.org/pa', " <span class=", " <b"])
        case "half lost":
            texts[side] = with_markup(texts[side], rng, f"<{tag}>", f"</{tag}>")
            texts[1 - side] = with_markup(texts[1 - side], rng, f"<{tag}>", "")
        case "spaced":
            texts[side] = with_markup(texts[side], rng, f"< {tag} > ", f" < / {tag} >")
        case "escaped twice":
            texts[side] = with_markup(texts[side], rng, "&amp;quot;", "&amp;quot;")
        case "crossed":
            a, b = "<b>", "</i>"
            texts[side] = a + with_markup(texts[side], rng, "<i>", "</b>") + b
    return texts[0], texts[1], way


def wrong_length(pair: Pair, rng: random.Random, others: list[Pair]) -> tuple[str, str, str] | None:
    """A sentence cut by a limit, several glued to one, or a placeholder in place of the text."""
    side = rng.randrange(2)
    texts = list(pair)
    n_words = len(words(texts[side]))
    way = rng.choice(["cut", "glued", "placeholder"])
    match way:
        case "cut":
            if n_words < 14:
                return None
            n_kept = max(1, n_words // rng.randint(8, 14))
            texts[side] = joined(words(texts[side])[:n_kept], texts[side])
        case "glued":
            further = [rng.choice(others)[side] for _ in range(rng.randint(7, 12))]
            texts[side] = joined([texts[side], *further], texts[side])
        case "placeholder":
            if n_words < 10:
                return None
            texts[side] = rng.choice(["N/A", "-", "...", "TODO", "?", "#REF!"])
    return texts[0], texts[1], way


def repeated(pair: Pair, rng: random.Random) -> tuple[str, str, str]:
    """A pair that stands elsewhere in the file too, perhaps retyped."""
    way = rng.choice(["exact", "exact", "exact", "case", "final mark", "spaces"])
    source, target = pair
    match way:
        case "case":
            source, target = source[:1].swapcase() + source[1:], target.upper()
        case "final mark":
            source, target = source.rstrip(".。") + "!", target.rstrip(".。")
        case "spaces":
            source, target = f" {source}", f"{target}\u3000"
    return source, target, way


def wrong_language(
    pair: Pair, rng: random.Random, at: int, n_pairs: int, foreign: list[Sequence[str]]
) -> tuple[str, str, str]:
    text = rng.choice(foreign)
    other = text[at] if len(text) == n_pairs else rng.choice(text)
    match rng.choice(["target", "target", "source", "both"]):
        case "target":
            return pair[0], other, "target"
        case "source":
            return other, pair[1], "source"
        case _:
            text = rng.choice(foreign)
            return other, text[at] if len(text) == n_pairs else rng.choice(text), "both"


def unharmed(pair: Pair, rng: random.Random) -> tuple[str, str, str]:
    """What looks odd and is right: no detector may report it."""
    way = rng.choice(["tags", "void tag", "signs", "entity", "address", "heart", "capitals"])
    source, target = pair
    match way:
        case "tags":
            source, target = (with_markup(t, rng, "<b>", "</b>") for t in pair)
        case "void tag":
            source, target = f"{source}<br/>", f"{target}<br/>"
        case "signs":
            source, target = f"{source} (5 < 7 > 3)", f"{target} (5 < 7 > 3)"
        case "entity":
            source, target = f"{source} R&amp;D", f"{target} R&amp;D"
        case "address":
            source, target = f"{source} <info@example.org>", f"{target} <info@example.org>"
        case "heart":
            source, target = f"{source} <3", f"{target} <3"
        case "capitals":
            source, target = source.upper(), target.upper()
    return source, target, way


def damaged(corpus: Corpus, rates: dict[str, float], seed: int) -> list[Line]:
    """The corpus's pairs with each kind planted at its rate, in a shuffled order of places: some
    as runs of neighbouring lines (a file appended the wrong way round), some alone."""
    rng = random.Random(seed)
    n_pairs = len(corpus.pairs)
    lines = [Line(*pair) for pair in corpus.pairs]
    ways: dict[str, Callable[[int], tuple[str, str, str] | None]] = {
        "copy": lambda at: untranslated(corpus.pairs[at], rng),
        "swapped": lambda at: exchanged(corpus.pairs[at], rng),
        "language": lambda at: wrong_language(corpus.pairs[at], rng, at, n_pairs, corpus.foreign),
        "markup": lambda at: broken_markup(corpus.pairs[at], rng),
        "length": lambda at: wrong_length(corpus.pairs[at], rng, corpus.pairs),
        "unharmed": lambda at: unharmed(corpus.pairs[at], rng),
    }
    free = set(range(n_pairs))
    for kind, way in ways.items():
        left = round(rates.get(kind, 0.0) * n_pairs)
        while left:
            start = rng.choice(sorted(free))
            run = rng.choice([1, 1, 1, min(left, 20)]) if kind == "swapped" else 1
            for at in range(start, min(start + run, n_pairs)):
                if at not in free or (changed := way(at)) is None:
                    continue
                lines[at] = Line(*changed[:2], None if kind == "unharmed" else kind, changed[2])
                free.remove(at)
                left -= 1
    clean = [pair for at, pair in enumerate(corpus.pairs) if at in free]
    for kind, pairs in (("duplicate", clean), ("overlap", corpus.held_out)):
        for _ in range(round(rates.get(kind, 0.0) * n_pairs)):
            source, target, way = repeated(rng.choice(pairs), rng)
            lines.insert(rng.randrange(len(lines) + 1), Line(source, target, kind, way))
    return lines


RATES = {
    "copy": 0.02,
    "swapped": 0.03,
    "language": 0.02,
    "markup": 0.02,
    "length": 0.02,
    "duplicate": 0.05,
    "overlap": 0.02,
    "unharmed": 0.03,
}


def unzipped(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line.strip() for line in file.read().split("\n")[:-1]]


def columns(path: Path) -> list[Pair]:
    rows = [line.split("\t") for line in unzipped(path)]
    return [(row[0].strip(), row[1].strip()) for row in rows if row[0].strip() and row[1].strip()]


def captions(root: Path, n_pairs: int) -> Corpus:
    """English and German picture captions; the same captions in French and Czech."""
    english, german, french, czech = (
        unzipped(root / f"multi30k/train.{code}.gz")[:n_pairs] for code in ("en", "de", "fr", "cs")
    )
    held_out = [unzipped(root / f"multi30k/val.{code}.gz") for code in ("en", "de")]
    pairs = list(zip(english, german, strict=True))
    return Corpus("captions", pairs, [french, czech], list(zip(*held_out, strict=True)))


def everyday(root: Path, n_pairs: int) -> Corpus:
    """Short everyday sentences, English and Chinese; news in German, captions in French."""
    pairs = columns(root / "tatoeba_cmn_eng/train.tsv.gz")[:n_pairs]
    foreign = [
        unzipped(root / "ntrex128/newstest2019-ref.deu.txt.gz"),
        unzipped(root / "multi30k/val.fr.gz"),
        EAST_ASIAN,
    ]
    held_out = columns(root / "tatoeba_cmn_eng/dev.tsv.gz")
    return Corpus("everyday", pairs, foreign, held_out)


def news(root: Path) -> Corpus:
    """News, German and Chinese: long sentences; English and French text."""
    german = unzipped(root / "ntrex128/newstest2019-ref.deu.txt.gz")
    chinese = unzipped(root / "ntrex128/newstest2019-ref.zho-CN.txt.gz")
    english = unzipped(root / "ntrex128/newstest2019-src.eng.txt.gz")
    pairs = list(zip(german, chinese, strict=True))
    foreign = [english[:1700], unzipped(root / "multi30k/val.fr.gz")]
    return Corpus("news", pairs[:1700], foreign, pairs[1700:])


EAST_ASIAN = [
    "昨日の夜、駅の前で古い友達に会いました。",
    "この本はとても面白かったので、もう一度読みたいです。",
    "明日は雨が降るそうですから、傘を持って行ってください。",
    "母は毎朝六時に起きて、朝ご飯を作ってくれます。",
    "すみません、トイレはどこにありますか。",
    "日本語の勉強を始めてから三年になります。",
    "어제 시장에서 사과를 세 개 샀어요.",
    "내일은 친구들과 함께 산에 올라갈 거예요.",
    "이 식당의 김치찌개는 정말 맛있습니다.",
    "지하철역까지 걸어서 얼마나 걸려요?",
    "할머니께서는 시골에서 채소를 기르십니다.",
    "회의는 오후 두 시에 시작할 예정입니다.",
]


def small() -> tuple[list[Line], list[Pair]]:
    """A hundred lines that were damaged by hand; nothing of them is held out."""
    rows = Path(__file__).with_name("damaged_small.tsv").read_text("utf-8").split("\n")[:-1]
    return [Line(*row.split("\t")[:2], row.split("\t")[2] or None) for row in rows], []


def write_files(folder: Path, lines: Sequence[Line], held_out: Sequence[Pair]) -> dict[str, Any]:
    """Two files to train on, two that are held out; and the settings of `[data]` that name them."""
    texts = {
        "train.source": [line.source for line in lines],
        "train.target": [line.target for line in lines],
        "valid.source": [source for source, _ in held_out],
        "valid.target": [target for _, target in held_out],
    }
    for name, text in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    paths = [str(folder / name) for name in texts]
    settings = {"task": "pairs", "format": "parallel", "vocab_size": 300, "train": tuple(paths[:2])}
    return settings | ({"valid": tuple(paths[2:])} if held_out else {})
