"""The requests that a browser may send to the live page, and their limits."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from clearhead.errors import ConfigError, InputError, nearest

MAX_BODY = 16_384  # bytes
MAX_CHARACTERS = 2_000
MAX_TOKENS = 128
MAX_BEAM = 8
MAX_OFF = 64
MAX_TEMPERATURE = 5.0
MAX_SEED = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class LookRequest:
    """One request to the model: a text, how to decode it, and what is switched off."""

    text: str
    target: str | None = None
    beam: int | None = None
    max_new: int | None = None
    temperature: float = 0.0
    seed: int = 0
    checkpoint: int | None = None
    """The step of one of the run's checkpoints; None: the model itself."""
    off: tuple[str, ...] = ()
    replace: str = "zero"
    language: str = "en"

    def __post_init__(self) -> None:
        for name in ("text", "target"):
            value = getattr(self, name)
            if not isinstance(value, str) and not (name == "target" and value is None):
                raise ConfigError(name, value, "must be a string", "write it in quotes")
            if value is not None and len(value) > MAX_CHARACTERS:
                rule = f"has {len(value)} characters, but only {MAX_CHARACTERS} are allowed"
                raise ConfigError(name, f"{value[:20]}…", rule, "shorten it")
        _check_whole("beam", self.beam, 1, MAX_BEAM, or_none=True)
        _check_whole("max_new", self.max_new, 1, MAX_TOKENS, or_none=True)
        _check_whole("seed", self.seed, 0, MAX_SEED)
        _check_whole("checkpoint", self.checkpoint, 0, 2**62, or_none=True)
        if isinstance(self.temperature, bool) or not isinstance(self.temperature, int | float):
            raise ConfigError("temperature", self.temperature, "must be a number", "try 0")
        if not 0 <= self.temperature <= MAX_TEMPERATURE:
            rule = f"must be 0 to {MAX_TEMPERATURE:g}"
            raise ConfigError("temperature", self.temperature, rule, "try 1")
        if not all(isinstance(switch, str) for switch in self.off):
            raise ConfigError("off", str(self.off)[:40], "must be names", "write them in quotes")
        if len(self.off) > MAX_OFF:
            raise ConfigError(
                "off", len(self.off), f"must be at most {MAX_OFF} names", "send fewer"
            )
        if self.replace not in ("zero", "mean"):
            raise ConfigError(
                "replace", self.replace, "is not a valid choice", "try 'zero' or 'mean'"
            )
        if self.language not in ("en", "zh"):
            raise ConfigError(
                "language", self.language, "is not a valid choice", "try 'en' or 'zh'"
            )

    def decoding(self) -> dict[str, Any]:
        """Return the settings that `finished_text` takes."""
        names = ("target", "beam", "max_new", "temperature", "seed")
        return {name: value for name, value in asdict(self).items() if name in names}


def read_request(body: bytes) -> LookRequest:
    """Read a request. Raises ClearheadError, with the reason, for anything that is not a valid
    request."""
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("the body is not JSON; send an object with a text") from None
    if not isinstance(decoded, dict) or "text" not in decoded:
        raise InputError('the body has no text; send an object such as {"text": "…"}')
    names = [field.name for field in fields(LookRequest)]
    for name in decoded:
        if name not in names:
            raise InputError(f"a request has no {name[:40]!r}; {nearest(name[:40], names)}")
    off = decoded.pop("off", [])
    if not isinstance(off, list):
        raise ConfigError("off", str(off)[:40], "must be a list of names", "try []")
    return LookRequest(**decoded, off=tuple(off))


def _check_whole(
    name: str, value: object, lowest: int, highest: int, *, or_none: bool = False
) -> None:
    if value is None and or_none:
        return
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not lowest <= value <= highest:  # pyright: ignore[reportOperatorIssue]
        rule = f"must be a whole number from {lowest} to {highest}"
        raise ConfigError(name, str(value)[:40], rule, f"try {lowest}")
