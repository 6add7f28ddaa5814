"""Folders and files as somebody might send them: honest ones, and how they are changed.

An honest sender's things are a recipe, its prepared data, its run, a classifier, a tokenizer, a
study and text in every format. A case is a copy of them in which one thing was changed: bytes, two
fields at a time, or a file that is a link, a pipe, a folder or a file without end. A sender knows
the hashes too: they are made right again where they stand in the folder itself.
"""

import gzip
import hashlib
import json
import os
import random
import shutil
import stat
import struct
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.cli import main
from clearhead.config import BatchConfig, DataConfig, ModelConfig, Recipe, TrainConfig, recipe_toml
from clearhead.intake.proposal import propose
from clearhead.interop.labels import Labels, write_labels
from clearhead.interop.model_folder import TokenIds, save_model
from clearhead.models import build_model
from clearhead.text.train import train_bpe
from clearhead.training.report import read_metrics
from tests.fuzz.studies import build_study, changed_study, study_verbs

MINE = "# my own file\n"
TEXT = "ein Hund läuft über die grüne Wiese und 红楼梦 the old man sees two small birds"
WORDS = TEXT.split()
SPECIAL = ("<pad>", "<bos>", "<eos>", "<mask>", "<good>", "<bad>")
FORMATS = ("txt", "txt.gz", "txt.zst", "tsv", "csv", "json", "jsonl", "parquet", "tmx")
NUMBERS = [-1, 0, 1, 2, 3, 7, 1000, 10**6, 10**9, 10**12, 2**31, 2**62, 2**63, 2**80]
NUMBERS += [-0.0, 0.5, 1.0, 1e-30, 1e30, 1e308, float("inf"), float("nan")]
STRINGS = ["", "x", "../../home/profile", "\0", "\x1b[8m", "<eos>", "a" * 999, "none"]
NASTY = [None, True, False, *NUMBERS, *STRINGS, [], {}, [1], ["x"], {"a": 1}, [[[[]]]]]
TOML = [
    "-1",
    "0",
    "1",
    "2",
    "1000000000000",
    "1e308",
    "inf",
    "nan",
    "true",
    "[]",
    "{}",
    "[[1]]",
    "0x7fffffffffffffff",
]
TOML += ['""', '"x"', '["text.txt"]', '"../../home/profile"', "9" * 400]
ENDLESS = 1200 * 2**20  # bytes: more than a case may have in memory
STRANGE = ("link", "link to a device", "pipe", "folder", "nothing", "empty", "endless")
UNTRIED = ("train.workers", "train.trackers", "train.compile", "train.steps")
"""Keys of a recipe that are not changed: a recipe is as good as a command line, and these start
processes, send metrics away, or train for years, as they are told."""


class Case(NamedTuple):
    """What a case does: change the copy, then act on it as the receiver would."""

    target: str
    change: str
    act: Callable[[], int]
    sealed: bool
    """Whether hashes were made right again: then a result may differ from the honest one."""


def sentence(number: int, length: int) -> str:
    return " ".join(WORDS[(number * 7 + i * i) % len(WORDS)] for i in range(length))


def build(place: Path) -> None:
    """The honest sender's things."""
    place.mkdir()
    lines = [sentence(i, 1 + i * 29 % 17) for i in range(60)]
    (place / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = Recipe(
        name="r",
        data=DataConfig(train=(str(place / "text.txt"),), vocab_size=300),
        batches=BatchConfig(length=12, batch_size=5),
        model=ModelConfig(
            family="decoder", d_model=16, n_heads=2, n_layers=1, d_ff=24, max_length=20
        ),
        train=TrainConfig(steps=4, warmup_steps=2, save_every=2, keep=2),
    )
    (place / "r.toml").write_text(recipe_toml(recipe), encoding="utf-8")
    for kind in FORMATS:
        _write_text(place / f"text.{kind}", lines)
        columns: tuple[int | str, ...] = {"tsv": (1, 2), "csv": (1, 2)}.get(kind, ("a", "b"))
        table = {} if kind.startswith("txt") else {"format": kind, "columns": columns}
        task = {} if kind.startswith("txt") else {"task": "pairs"}
        data = replace(recipe.data, train=(str(place / f"text.{kind}"),), **table, **task)
        text = recipe_toml(replace(recipe, data=data))
        (place / f"{kind}.toml").write_text(text, encoding="utf-8")
    out, run = str(place / "prepared"), str(place / "run")
    assert main(["prepare", str(place / "r.toml"), "--out", out, "--processes", "1"]) == 0
    assert main(["train", str(place / "r.toml"), "--prepared", out, "--folder", run]) == 0
    tokenizer = train_bpe(lines, 300, special_tokens=SPECIAL)
    (place / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    sizes: dict[str, Any] = {
        "d_model": 16,
        "n_layers": 1,
        "n_heads": 2,
        "d_ff": 24,
        "max_length": 20,
        "pad_id": 0,
    }
    config = ModelConfig(family="encoder", vocab_size=tokenizer.vocab_size, **sizes)
    save_model(build_model(config), place / "classifier", ids=TokenIds(), tokenizer=place)
    write_labels(place / "classifier", Labels(mask=3, ids={"good": 4, "bad": 5}))
    build_study(place)


def _write_text(path: Path, lines: list[str]) -> None:
    import pyarrow
    import zstandard
    from pyarrow import parquet

    pairs = list(zip(lines, reversed(lines)))
    plain = ("\n".join(lines) + "\n").encode()
    match path.name.removeprefix("text."):
        case "txt":
            path.write_bytes(plain)
        case "txt.gz":
            path.write_bytes(gzip.compress(plain, mtime=0))
        case "txt.zst":
            path.write_bytes(zstandard.ZstdCompressor().compress(plain))
        case "tsv":
            path.write_text("\n".join("\t".join(pair) for pair in pairs), encoding="utf-8")
        case "csv":
            path.write_text("\n".join(",".join(pair) for pair in pairs), encoding="utf-8")
        case "json":
            text = json.dumps([{"a": a, "b": b} for a, b in pairs], indent=1)
            path.write_text(text, encoding="utf-8")
        case "jsonl":
            records = [json.dumps({"a": a, "b": b}) for a, b in pairs]
            path.write_text("\n".join(records), encoding="utf-8")
        case "parquet":
            columns = zip(("a", "b"), zip(*pairs))
            parquet.write_table(pyarrow.table({name: list(each) for name, each in columns}), path)
        case "tmx":
            units = "".join(
                f'<tu><tuv xml:lang="a"><seg>{a}</seg></tuv>'
                f'<tuv xml:lang="b"><seg>{b}</seg></tuv></tu>\n'
                for a, b in pairs
            )
            path.write_text(f"<tmx><body>{units}</body></tmx>", encoding="utf-8")


def losses(run: Path) -> list[str]:
    """Of every step, to the last bit."""
    return [line["loss_hex"] for line in read_metrics(run / "metrics.jsonl") if "loss_hex" in line]


def make_case(sent: Path, draw: random.Random) -> Case:
    """Changes something in the copy that was sent."""
    kinds = {"tokenizer": 24, "recipe": 22, "data": 26, "model": 12, "run": 8, "prepared": 8}
    kinds |= {"study": 10}
    target = draw.choices(list(kinds), list(kinds.values()))[0]
    return {
        "tokenizer": _tokenizer,
        "recipe": _recipe,
        "data": _data,
        "model": _model,
        "run": _run,
        "prepared": _prepared,
        "study": _study,
    }[target](sent, draw)


def _tokenizer(sent: Path, draw: random.Random) -> Case:
    folder = draw.choice([sent / "run/model", sent / "classifier"])
    told = _change(folder / "tokenizer.json", draw)
    return Case("tokenizer", told, _use_of(folder, draw), True)


def _model(sent: Path, draw: random.Random) -> Case:
    folder = draw.choice([sent / "run/model", sent / "classifier"])
    names = [path.name for path in sorted(folder.iterdir()) if path.name != "tokenizer.json"]
    told = _change(folder / draw.choice(names), draw)
    return Case("model", told, _use_of(folder, draw), True)


def _use_of(folder: Path, draw: random.Random) -> Callable[[], int]:
    chosen = draw.choice(_uses(folder))
    return lambda: main(chosen)


def _uses(folder: Path) -> list[list[str]]:
    lines = [*_given(folder), "--output", str(folder.parent / "out")]
    if folder.name == "classifier":
        return [["classify", str(folder), *lines], ["see", str(folder), "old"]]
    return [
        ["generate", str(folder), *lines, "--max-new", "3"],
        ["score", str(folder), *lines],
        ["see", str(folder), "ein Hund", "--max-new", "2"],
    ]


def use_all(sent: Path) -> None:
    """Every verb once, on honest things: what is imported and made once is there before the cases
    are forked."""
    recipe, out = str(sent / "r.toml"), ["--out", str(sent / "prepared")]
    verbs = [*_uses(sent / "run/model"), *_uses(sent / "classifier"), ["runs", str(sent / "run")]]
    verbs += [["describe", recipe], ["data", recipe, *out], ["runs", str(sent)]]
    for kind in FORMATS:
        new = ["--out", str(sent / f"new {kind}"), "--processes", "1"]
        verbs += [["prepare", str(sent / f"{kind}.toml"), *new]]
        if not kind.startswith("txt"):
            propose(sent / f"text.{kind}")
    for given in [*verbs, *study_verbs(sent)]:
        assert main(given) == 0, given


def _given(folder: Path) -> list[str]:
    given = folder.parent / "given.txt"
    given.write_text("ein Hund läuft\nthe old man\n", encoding="utf-8")
    return ["--input", str(given)]


def _recipe(sent: Path, draw: random.Random) -> Case:
    path = sent / "r.toml"
    told = _change_settings(path, draw)
    new = ["--out", str(sent / "new")]
    run = ["--prepared", str(sent / "new"), "--folder", str(sent / "again")]
    still = ["--train.steps", "5", "--train.trackers", "[]", "--train.workers", "0"]
    verbs = [["describe", str(path)], ["prepare", str(path), *new, "--processes", "1"]]
    verbs += [["train", str(path), *run, *still]]
    chosen = draw.choice(verbs)
    return Case("recipe", f"{chosen[0]}: {told}", lambda: main(chosen), True)


def _change_settings(path: Path, draw: random.Random) -> str:
    """Two values of a TOML file, or its bytes."""
    if draw.random() < 0.15:
        return _change_bytes(path, draw)
    lines = path.read_text(encoding="utf-8").split("\n")
    section, keys = "", dict[int, str]()
    for number, line in enumerate(lines):
        section = line.strip("[]") if line.startswith("[") else section
        key = f"{section}.{line.split(' = ')[0]}"
        if " = " in line and not line.startswith("#") and key not in UNTRIED:
            keys[number] = key
    told = ""
    for number in draw.sample(sorted(keys), 2):
        value = _toml(lines[number].split(" = ")[1], draw)
        lines[number] = f"{lines[number].split(' = ')[0]} = {value}"
        told += f"{keys[number]} = {value[:20]}; "
    path.write_text("\n".join(lines), encoding="utf-8")
    return told


def _toml(before: str, draw: random.Random) -> str:
    """Another value, most often of the same type: others are refused soon."""
    numbers = [value for value in TOML if value[0] in "-0123456789" or value in ("inf", "nan")]
    if draw.random() < 0.25 or before[0] == "{":
        return draw.choice(TOML)
    if before in ("true", "false"):
        return "false" if before == "true" else "true"
    if before[0] in '"[':
        return draw.choice([value for value in TOML if value[0] == before[0]])
    return draw.choice([*numbers, str(round(float(before) * draw.choice([0, 2, 3, 100]), 6)), "3"])


def _data(sent: Path, draw: random.Random) -> Case:
    kind = draw.choice(FORMATS)
    path = sent / f"text.{kind}"
    told = _change(path, draw)
    if not kind.startswith("txt") and draw.random() < 0.3:
        return Case("data", f"propose, {told}", lambda: (propose(path), 0)[1], True)
    where = ["--out", str(sent / "new"), "--processes", "1"]
    given = ["prepare", str(sent / f"{kind}.toml"), *where]
    return Case("data", told, lambda: main(given), True)


def train_on(sent: Path) -> list[str]:
    """What the receiver of a run does: train on."""
    where = ["--prepared", str(sent / "prepared"), "--folder", str(sent / "run")]
    return ["train", str(sent / "r.toml"), *where, "--train.steps", "6"]


def _run(sent: Path, draw: random.Random) -> Case:
    run = sent / "run"
    files = [path for path in sorted(run.rglob("*")) if not path.is_relative_to(run / "model")]
    chosen = draw.choice([path for path in files if path.is_file()] + files)
    told = _change(chosen, draw)
    sealed = False
    if draw.random() < 0.7:
        for step in sorted((run / "checkpoints").glob("step-*")):
            sealed |= _reseal_checkpoint(step)
    given = draw.choice([train_on(sent)] * 3 + [["runs", str(run)], ["runs", str(sent)]])
    return Case("run", f"{given[0]}: {told}", lambda: main(given), sealed)


def _prepared(sent: Path, draw: random.Random) -> Case:
    prepared = sent / "prepared"
    files = sorted(prepared.rglob("*"))
    told = _change(draw.choice([path for path in files if path.is_file()] + files), draw)
    sealed = draw.random() < 0.7 and _reseal_prepared(prepared)
    where = ["--out", str(prepared)]
    verbs = [train_on(sent), ["prepare", str(sent / "r.toml"), *where, "--processes", "1"]]
    verbs += [["data", str(sent / "r.toml"), *where]]
    given = draw.choice(verbs)
    return Case("prepared", f"{given[0]}: {told}", lambda: main(given), sealed)


def _study(sent: Path, draw: random.Random) -> Case:
    target, told, given = changed_study(sent, draw, _change, _change_settings)
    return Case(target, told, lambda: main(given), True)


def _content(path: Path) -> bytes:
    """Read a regular file; what was put in its place may have no end."""
    about = path.lstat()
    if not stat.S_ISREG(about.st_mode) or about.st_size > 2**24:
        raise OSError(f"{path} is not a regular file")
    return path.read_bytes()


def _reseal_checkpoint(step: Path) -> bool:
    """Makes the hashes right again, where there is still something to write them into."""
    try:
        manifest = json.loads(_content(step / "manifest.json"))
        for name in manifest["files"]:
            digest = hashlib.sha256(_content(step / name)).hexdigest()
            manifest["files"][name] = digest
        text = json.dumps(manifest)
        changed = text.encode() != _content(step / "manifest.json")
        _content(step / "manifest.sha256")  # not through a link, or into a pipe
        (step / "manifest.json").write_text(text)
        (step / "manifest.sha256").write_text(hashlib.sha256(text.encode()).hexdigest() + "\n")
        return changed
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _reseal_prepared(prepared: Path) -> bool:
    try:
        path = prepared / "manifest.json"
        manifest = json.loads(_content(path))
        for facts in manifest["tokenizers"].values():
            facts["sha256"] = hashlib.sha256(_content(prepared / facts["file"])).hexdigest()
        for split in manifest["splits"].values():
            for facts in (facts for files in split["files"].values() for facts in files):
                for key, suffix in (("sha256", ""), ("index_sha256", ".index")):
                    content = _content(prepared / (facts["name"] + suffix))
                    facts[key] = hashlib.sha256(content).hexdigest()
        path.write_text(json.dumps(manifest))
        return True
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _change(path: Path, draw: random.Random) -> str:
    """One thing of a file or folder; says what."""
    kind = draw.random()
    if path.is_dir() or kind < 0.12:
        return _replace(path, draw)
    if kind < 0.55 and path.suffix in (".json", ".jsonl", ".safetensors"):
        return _change_fields(path, draw)
    return _change_bytes(path, draw)


def _replace(path: Path, draw: random.Random) -> str:
    """A file or folder by something else of its name."""
    home = path
    while home.name != "sent":
        home = home.parent
    mine = home.parent / "home/profile"
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    # Weights may be as large as they like: what they cost is in proportion to their file.
    sized = path.suffix == ".safetensors"
    what = draw.choice([kind for kind in STRANGE if not (sized and kind == "endless")])
    match what:
        case "link":
            path.symlink_to(mine)
        case "link to a device":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "endless":
            with path.open("wb") as file:
                file.truncate(ENDLESS)  # sparse: it takes no space
    return f"{path.name} becomes {what}"


def _change_bytes(path: Path, draw: random.Random) -> str:
    data = path.read_bytes()
    place = draw.randrange(len(data) + 1)
    match draw.randrange(5):
        case 0:
            what, data = "cut", data[:place]
        case 1:
            what, data = "shortened", data[:place] + data[place + draw.randrange(1, 9) :]
        case 2:
            what, data = (
                "longer",
                data[:place] + draw.randbytes(draw.randrange(1, 9)) + data[place:],
            )
        case 3:
            piece = data[place : place + draw.randrange(1, 200)]
            what, data = "repeated", data[:place] + piece * draw.randrange(2, 50) + data[place:]
        case _:
            flipped = bytearray(data)
            for _ in range(draw.choice([1, 1, 2, 4, 16])):
                if flipped:
                    flipped[draw.randrange(len(flipped))] = draw.randrange(256)
            what, data = "flipped", bytes(flipped)
    path.write_bytes(data)
    return f"{path.name} {what} at {place}"


def _change_fields(path: Path, draw: random.Random) -> str:
    """Two fields at a time."""
    data, tail = path.read_bytes(), b""
    lines: list[bytes] = []
    if path.suffix == ".safetensors":
        (length,) = struct.unpack("<Q", data[:8])
        data, tail = data[8 : 8 + length], data[8 + length :]
    elif path.suffix == ".jsonl":
        lines = data.splitlines(keepends=True)
        number = draw.randrange(len(lines))
        data, tail, lines = lines[number], b"".join(lines[number + 1 :]), lines[:number]
    content = json.loads(data)
    told = [_change_one(content, draw) for _ in range(2)]
    changed = json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if path.suffix == ".safetensors":
        changed = struct.pack("<Q", len(changed)) + changed
    elif path.suffix == ".jsonl":
        changed = b"".join(lines) + changed + b"\n"
    path.write_bytes(changed + tail)
    return f"{path.name}: {', '.join(told)}"


def _change_one(content: Any, draw: random.Random) -> str:
    """Goes down to some place, and changes what is there."""
    way = ""
    while True:
        if isinstance(content, dict) and content:
            key: Any = draw.choice(sorted(content, key=str))
        elif isinstance(content, list) and content:
            key = draw.randrange(len(content))
        else:
            return f"{way} is empty"
        way += f".{str(key)[:20]}"
        inner = content[key]
        if not isinstance(inner, dict | list) or not inner or draw.random() < 0.25:
            break
        content = inner
    match draw.randrange(6):
        case 0:
            del content[key]
            return f"{way} gone"
        case 1 if isinstance(content, dict):
            content[draw.choice(["x", "auto_map", "type", "__reduce__"])] = content.pop(key)
            return f"{way} renamed"
        case 2 if isinstance(inner, int) and not isinstance(inner, bool):
            content[key] = inner + draw.choice([-1, 1, 2, 100])
        case _:
            alike = [value for value in NASTY if type(value) is type(inner)]
            # A copy: the next change may go down into it.
            content[key] = deepcopy(draw.choice(alike if alike and draw.random() < 0.5 else NASTY))
    return f"{way}={content[key]!r:.30}"
