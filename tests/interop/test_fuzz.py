"""Real folders, damaged in many ways: one of clearhead's errors or a correct load; never a crash, a
hang, or gigabytes."""

import json
import random
import resource
import shutil
import signal
import struct
from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import ClearheadError
from clearhead.interop.huggingface.importing import import_model
from clearhead.interop.model_folder import load_model
from tests.drawing import draws
from tests.interop.hugging import KINDS

MUTATIONS = draws(30, nightly=300)
"""Of each of the seven families: every night more than two thousand."""
SECONDS = 5
MEGABYTES = 300
NASTY: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 3, 10**6, 10**9, 10**12, 2**31, 2**62, 2**63, 2**80),
    *(-0.0, 0.5, 1e-30, 1e30, 1e308, "", "x", "../../etc", "\0", "relu", [], {}, [1], {"a": 1}),
]
DTYPES = ["F64", "F32", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "F4", "", 7]


@pytest.mark.parametrize("family", KINDS)
def test_a_damaged_folder_is_refused_or_read(family: str, tmp_path: Path):
    original = tmp_path / "original"
    one_layer = {
        name: 1
        for name in ("n_layer", "num_hidden_layers", "encoder_layers", "decoder_layers")
        if name in KINDS[family].settings
    }
    KINDS[family].make(**one_layer).save_pretrained(original)
    draw = random.Random(family)
    before = peak_megabytes()
    outcomes = {"refused": 0, "read": 0}
    for number in range(MUTATIONS):
        folder, out = tmp_path / "damaged", tmp_path / "out"
        shutil.copytree(original, folder)
        damage(folder, draw)
        with at_most(SECONDS, f"mutation {number} of {family}"):
            outcomes[attempt(folder, out)] += 1
        shutil.rmtree(folder)
        shutil.rmtree(out, ignore_errors=True)
    assert peak_megabytes() - before < MEGABYTES
    assert min(outcomes.values()) > MUTATIONS / 50, outcomes
    assert {path.name for path in tmp_path.iterdir()} == {"original"}


def attempt(folder: Path, out: Path) -> str:
    try:
        import_model(folder, out)
    except ClearheadError:
        assert not out.exists()
        return "refused"
    model = load_model(out)
    assert all(parameter.is_floating_point() for parameter in model.parameters())
    return "read"


def damage(folder: Path, draw: random.Random) -> None:
    config, weights = folder / "config.json", folder / "model.safetensors"
    match draw.randrange(5):
        case 0 | 1:
            content = json.loads(config.read_text())
            for _ in range(2):  # a number alone is refused early; two may fit each other
                damage_object(content, draw)
            config.write_text(json.dumps(content))
        case 2:
            config.write_bytes(damaged_bytes(config.read_bytes(), draw))
        case 3:
            header, data = split(weights.read_bytes())
            content = json.loads(header)
            for _ in range(2):
                damage_header(content, draw)
            weights.write_bytes(joined(json.dumps(content).encode(), data))
        case _:
            header, data = split(weights.read_bytes())
            match draw.randrange(4):
                case 0:
                    weights.write_bytes(joined(damaged_bytes(header, draw), data))
                case 1:
                    weights.write_bytes(joined(header, damaged_bytes(data, draw)))
                case 2:
                    weights.write_bytes(damaged_bytes(weights.read_bytes(), draw))
                case _:
                    length = struct.pack("<Q", draw.choice([0, 1, 2**20, 2**40, 2**63, 2**64 - 1]))
                    weights.write_bytes(length + header + data)


def damage_object(content: dict[str, Any], draw: random.Random) -> None:
    key = draw.choice(list(content))
    match draw.randrange(6):
        case 0:
            del content[key]
        case 1:
            content[draw.choice(["auto_map", "x", "rope_scaling", "n_inner"])] = draw.choice(NASTY)
        case 2:
            content[key] = content[draw.choice(list(content))]
        case _:
            content[key] = draw.choice(NASTY)


def damage_header(content: dict[str, Any], draw: random.Random) -> None:
    tensors = [name for name, each in content.items() if isinstance(each, dict) and "shape" in each]
    name = draw.choice(tensors)
    match draw.randrange(7):
        case 0:
            del content[name]
        case 1:
            content[draw.choice(["../x", "", "lm_head.weight", "\0"])] = content.pop(name)
        case 2:
            content[name]["dtype"] = draw.choice(DTYPES)
        case 3:
            content[name]["shape"] = draw.choice(
                [[], [0], [-1], [2**40], [2**62, 4], ["a"], 7, [1] * 1000, [24, 53]]
            )
        case 4:
            content[name]["data_offsets"] = draw.choice(
                [[0, 0], [0, 4], [4, 0], [-4, 0], [0, 2**62], [2**63, 2**64], [], "x", [0.5, 1]]
            )
        case 5:
            content["__metadata__"] = draw.choice([{}, {"format": "pt", "a": "b"}, {"a": 1}, 7])
        case _:
            content[name] = draw.choice(NASTY)


def damaged_bytes(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data))
    match draw.randrange(4):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + data[place + draw.randrange(1, 9) :]
        case 2:
            return data[:place] + draw.randbytes(draw.randrange(1, 9)) + data[place:]
        case _:
            return data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :]


def split(file: bytes) -> tuple[bytes, bytes]:
    (length,) = struct.unpack("<Q", file[:8])
    return file[8 : 8 + length], file[8 + length :]


def joined(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class at_most:  # noqa: N801 (reads as a word)
    """An alarm, for whatever would hang."""

    def __init__(self, seconds: int, what: str) -> None:
        self.seconds, self.what = seconds, what

    def __enter__(self) -> None:
        def ring(*_: Any) -> None:
            raise TimeoutError(f"{self.what} took more than {self.seconds} s")

        self.before = signal.signal(signal.SIGALRM, ring)
        signal.alarm(self.seconds)

    def __exit__(self, *_: Any) -> None:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, self.before)
