"""Reports what a run does while it trains: numbers go to `metrics.jsonl`, messages to `log.txt`,
and both to further listeners (a progress bar, a tracker). Only rank 0 reports."""

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from clearhead.errors import ClearheadError, InputError, type_of
from clearhead.files import open_plain, sync, write_whole

# the file's name in the folder of a run
METRICS, LOG, CHECKPOINTS = "metrics.jsonl", "log.txt", "checkpoints"
NEW_MODEL = ".model.new"
"""The model folder that is written before it replaces the older one."""
MAX_LINE = 2**24
"""The highest number of bytes in a line. A line that names every sample of a skipped step has
thousands."""
TIMED = ("tokens_per_second", "utilisation")
"""Values that differ between two runs of the same steps. They come last in a line."""
SAMPLES = "samples"
"""A key next to the numbers of a validation: texts with their translations."""
SHOWN = 160  # the highest number of characters of a text
MetricsLine = dict[str, Any]
_log = logging.getLogger("clearhead")


class Listener(Protocol):
    """Receives what a run reports. `step` gets the numbers of every step, `validation` those of
    each validation, and `say` a message for people."""

    def step(self, record: MetricsLine) -> None: ...
    def validation(self, record: MetricsLine) -> None: ...
    def say(self, text: str) -> None: ...
    def close(self) -> None: ...


def check_listeners(listeners: object) -> None:
    """Raises unless these are listeners, or None."""
    if listeners is None:
        return
    if not isinstance(listeners, Iterable):
        raise InputError(f"listeners={listeners!r:.60} is {type_of(listeners)}; give a list")
    methods = ("step", "validation", "say", "close")
    for listener in listeners:
        missing = [name for name in methods if not callable(getattr(listener, name, None))]
        if missing:
            raise InputError(
                f"the listener {listener!r:.60} has no {' and no '.join(missing)}; give it the "
                f"methods {', '.join(methods)}"
            )


class Reporter:
    """Passes all reports on to all listeners."""

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self.listeners = list(listeners)

    def put_first(self, listener: Listener) -> None:
        """Add a listener that receives every report before the others do."""
        self.listeners.insert(0, listener)

    def step(self, record: MetricsLine) -> None:
        for listener in self.listeners:
            listener.step(record)

    def validation(self, record: MetricsLine) -> None:
        for listener in self.listeners:
            listener.validation(record)

    def say(self, text: str) -> None:
        _log.info(text)
        for listener in self.listeners:
            listener.say(text)

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()


class RunFiles:
    """The two files of a run's folder. Each line is written at once, so that a killed process
    leaves at most part of a line, which the next start removes."""

    def __init__(self, folder: Path, *, log_every: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log_every = log_every
        self.metrics, self.log = _Lines(folder / METRICS), _Lines(folder / LOG)
        self._sha256 = hashlib.sha256()

    def forget_after(self, step: int) -> None:
        """Remove the lines of steps that will be repeated."""
        self.metrics.close()
        path = self.metrics.path
        records = read_metrics(path)
        kept = [json.dumps(record) for record in records if record["step"] <= step]
        text = "".join(line + "\n" for line in kept)
        if path.stat().st_size != len(text.encode()) or path.read_bytes() != text.encode():
            write_whole(path, text)
        self.metrics, self._sha256 = _Lines(path), hashlib.sha256(text.encode())

    def step(self, record: MetricsLine) -> None:
        self._write(record)
        if record["step"] % self.log_every == 0 or record.get("skipped"):
            self.say(step_line(record))

    def validation(self, record: MetricsLine) -> None:
        self._write(record)
        self.say(validation_line(record))

    def say(self, text: str) -> None:
        self.log.add(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}")

    def sync(self) -> None:
        """Sync every line of the metrics to the disk. Raises OSError if a line does not fit."""
        self.metrics.sync()

    def metrics_sha256(self) -> str:
        """Return a hash of all lines of the metrics so far. Checkpoints store it, so that lost or
        changed lines are noticed later."""
        return self._sha256.hexdigest()

    def close(self) -> None:
        self.metrics.close()
        self.log.close()

    def _write(self, record: MetricsLine) -> None:
        line = json.dumps(record)
        self._sha256.update(line.encode() + b"\n")
        self.metrics.add(line)


class _Lines:
    """A file that grows by lines. If a disk is full, its lines are written later: a full disk for
    the log does not end the run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        descriptor = open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.file = os.fdopen(descriptor, "ab", buffering=0)
        self.waiting = b""

    def add(self, line: str) -> None:
        self.waiting += line.encode() + b"\n"
        try:
            self._write()
        except OSError as error:
            if self.waiting.count(b"\n") == 1:  # this is said only once
                _log.warning(
                    "%s: %s; lines are kept and written when there is space",
                    self.path,
                    error.strerror,
                )

    def _write(self) -> None:
        self.waiting = self.waiting[self.file.write(self.waiting) :]

    def sync(self) -> None:
        try:
            while self.waiting:
                self._write()
            os.fsync(self.file.fileno())
            sync(self.path.parent)  # the file may be new, or may have replaced another one
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def close(self) -> None:
        self.file.close()


class Trackers:
    """TensorBoard, Weights & Biases and others, through accelerate's interfaces to them."""

    def __init__(
        self, names: Sequence[str], folder: Path, facts: MetricsLine, log_every: int
    ) -> None:
        try:
            from accelerate.tracking import LOGGER_TYPE_TO_CLASS
        except ImportError:
            raise ClearheadError(
                f"train.trackers={list(names)} need another package; "
                'install it with: pip install "clearhead[track]"'
            ) from None
        kinds = {str(name): kind for name, kind in LOGGER_TYPE_TO_CLASS.items()}
        self.log_every = log_every
        self.trackers = []
        for name in names:
            if name not in kinds:
                raise ClearheadError(
                    f"train.trackers: there is no {name!r}; choose from {', '.join(sorted(kinds))}"
                )
            kind = kinds[name]
            where = {"logging_dir": folder} if kind.requires_logging_directory else {}
            try:
                tracker = kind(folder.name, **where)
                tracker.start()
                tracker.store_init_configuration(_flat(facts))
            except ImportError as error:
                package = error.name or name
                raise ClearheadError(
                    f"train.trackers: {name!r} needs another package; install it with: "
                    f"pip install {package}"
                ) from None
            except Exception as error:  # of any type that a tracker raises
                raise ClearheadError(
                    f"train.trackers: {name!r} does not start ({type(error).__name__}: {error}); "
                    "set it up, or leave it out"
                ) from error
            self.trackers.append(tracker)

    def step(self, record: MetricsLine) -> None:
        if record["step"] % self.log_every == 0:
            self._send(record, "train")

    def validation(self, record: MetricsLine) -> None:
        self._send(record, "valid")

    def say(self, text: str) -> None:
        pass

    def close(self) -> None:
        for tracker in list(self.trackers):
            self._try(tracker, tracker.finish)

    def _send(self, record: MetricsLine, prefix: str) -> None:
        numbers = {  # MLflow takes no other characters
            re.sub(r"[^\w./ -]", "p", f"{prefix}/{name}"): value
            for name, value in record.items()
            if type(value) in (int, float) and name != "step"
        }
        for tracker in list(self.trackers):
            self._try(tracker, partial(tracker.log, numbers, step=record["step"]))

    def _try(self, tracker: Any, call: Callable[[], object]) -> None:
        """Call a tracker. If it fails, it is left out from then on, as the run does not depend on
        it."""
        try:
            call()
        except Exception as error:
            self.trackers.remove(tracker)
            _log.warning(
                "%s fails and is left out from here on (%s: %s); metrics.jsonl has everything",
                type(tracker).__name__,
                type(error).__name__,
                error,
            )


def read_metrics(path: Path) -> list[MetricsLine]:
    """Read the complete lines of a metrics file, which a run may be writing at this moment."""
    if not path.is_file():
        return []
    records: list[MetricsLine] = []
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE):
            if not line.endswith(b"\n"):
                continue
            try:
                record = json.loads(line.decode("utf-8", errors="replace"))
            except (ValueError, RecursionError):
                # part of a line, which a restart has joined to the next line
                continue
            if isinstance(record, dict) and type(record.get("step")) is int:
                records.append(record)
    return records


def step_line(record: MetricsLine) -> str:
    """Format a step's numbers as one line for people."""
    if record.get("skipped") and "samples" not in record:
        return (
            f"step {record['step']:,} was skipped: its gradient overflowed in fp16 with the loss "
            f"scale {record['loss_scale']:,.0f}, which is halved"
        )
    if record.get("skipped"):
        return (
            f"step {record['step']:,} was skipped: loss {record['loss']}, gradient norm "
            f"{record['grad_norm']}; its samples: {str(record['samples'])[:200]}"
        )
    rate = f"{record['tokens_per_second']:,.0f} tokens/s" if "tokens_per_second" in record else ""
    return (
        f"step {record['step']:,}  loss {record['loss']:.4f}  lr {record['lr']:.3g}  "
        f"norm {record['grad_norm']:.3f}  {rate}"
    )


def validation_line(record: MetricsLine) -> str:
    """Format a validation's numbers as one line for people, with the translations that it shows, if
    any, below it."""
    hidden = ["step", "valid", "new_best", SAMPLES]
    perplexity = record.get("perplexity")
    if "accuracy" in record or (isinstance(perplexity, float) and perplexity > 1e6):
        # labels are not words, and a huge perplexity says less than the loss
        hidden.append("perplexity")
    numbers = "".join(
        f"  {name} {value if isinstance(value, str) else format(value, '.4f')}"
        for name, value in record.items()
        if name not in hidden
    )
    line = f"step {record['step']:,}  valid{numbers}{'  (best)' if record['new_best'] else ''}"
    return "\n".join([line, *sample_lines(record)])


def sample_lines(record: MetricsLine) -> list[str]:
    """Format the translations of a validation, with one line for each text."""
    samples = record.get(SAMPLES)
    return [
        f"  {name:<12}{_one_line(str(text))}"
        for sample in (samples if isinstance(samples, list) else [])
        for name, text in (sample.items() if isinstance(sample, dict) else [])
    ]


def _one_line(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= SHOWN else f"{plain[:SHOWN]}…"


def _flat(facts: MetricsLine) -> MetricsLine:
    """Flatten a recipe for trackers, which only take words and numbers."""
    return {
        f"{section}.{key}": value if isinstance(value, int | float | str | bool) else str(value)
        for section, values in facts.items()
        for key, value in values.items()
    }
