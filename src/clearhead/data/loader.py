"""Loads the batch of every step for one rank. The data, the configuration and n alone determine the
n-th global batch; ranks, workers and restarts only decide which process reads it."""

import signal
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from clearhead.config.batches import BatchConfig
from clearhead.config.checks import MOST
from clearhead.data.batches import Batch
from clearhead.data.corpus import Corpus
from clearhead.data.layouts import BatchLayout, BatchRow
from clearhead.data.order import derive_key, permute
from clearhead.errors import ConfigError, DataError
from clearhead.processes import starting_processes


class Position(NamedTuple):
    """The position of the next global batch: its number, its window, its epoch and its step."""

    step: int = 0
    epoch: int = 0
    window: int = 0
    batch: int = 0


class Order(NamedTuple):
    """The rows of one global batch that a rank has to read."""

    rows: list[BatchRow]
    key: int
    after: Position


class Loader:
    """Endless batches of a split for rank `rank` of `world`.

    `state()` holds all that is needed to resume after the last batch that was returned, with any
    number of ranks and workers. Iterating again continues; it does not start over."""

    def __init__(
        self,
        corpus: Corpus,
        config: BatchConfig,
        *,
        split: str = "train",
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
        epochs: int | None = None,
    ) -> None:
        if not 0 <= rank < world:
            rule = f"must be at least 0 and below world={world}"
            raise ConfigError("rank", rank, rule, "give each process its own rank")
        self.layout = corpus.layout(split, config)
        self.rank, self.world, self.workers, self.epochs = rank, world, workers, epochs
        self.position = Position()
        self.fingerprint = corpus.manifest.fingerprint
        self.order = {"split": split, "samples": self.layout.n_samples, **asdict(config)}
        self._seed = config.seed

    def state(self) -> dict[str, Any]:
        """Return the position as plain JSON: four numbers, and the settings and data to which they
        belong."""
        return {**self.position._asdict(), "data": self.fingerprint, "order": self.order}

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume from a saved position. Raises if data or settings have changed."""
        changes = [
            f"{key} was {value!r}, is {self.order.get(key)!r}"
            for key, value in state["order"].items()
            if self.order.get(key) != value
        ]
        if state["data"] != self.fingerprint:
            changes.append(f"the data was {state['data'][:12]}…, is {self.fingerprint[:12]}…")
        if changes:
            raise DataError(
                f"this position belongs to different batches: {'; '.join(changes)}; "
                "restore those settings and data, or start a new run"
            )
        numbers = [state[name] for name in Position._fields]
        if not all(type(number) is int and 0 <= number < MOST for number in numbers):
            raise DataError(f"{numbers} is not a position in the data; is the checkpoint damaged?")
        self.position = Position(*numbers)

    def __iter__(self) -> Iterator[Batch]:
        with starting_processes():
            loader = DataLoader(
                _Reading(self.layout),
                batch_size=None,
                sampler=_Orders(self),
                num_workers=self.workers,
                collate_fn=_as_it_is,  # pyright: ignore[reportArgumentType]
                generator=torch.Generator(),  # else it draws from the one that dropout uses
                worker_init_fn=_leave_signals,
            )
            batches = iter(loader)
        for batch, after in batches:
            self.position = after
            yield batch

    def orders(self, position: Position) -> Iterator[Order]:
        """Yield this rank's share of every batch from `position` on. A position far into the corpus
        costs no more than its start."""
        n, window = self.layout.n_samples, self.layout.window
        n_windows = -(-n // window)
        while self.epochs is None or position.epoch < self.epochs:
            step, epoch, number, first = position
            key = derive_key(self._seed, epoch)
            places = np.arange(number * window, min((number + 1) * window, n))
            batches = self.layout.cut(permute(places, n, key), derive_key(key, "window", number))
            if number >= n_windows or first >= len(batches):
                raise DataError(f"{position} is not in the data; is the checkpoint damaged?")
            next_window = (epoch, number + 1) if number + 1 < n_windows else (epoch + 1, 0)
            for batch in range(first, len(batches)):
                step += 1
                last = batch + 1 == len(batches)
                next_batch = (*next_window, 0) if last else (epoch, number, batch + 1)
                position = Position(step, *next_batch)
                yield Order(batches[batch][self.rank :: self.world], key, position)


class _Orders(Sampler[Order]):
    """Yields orders in the loader's process, a little ahead of the reading."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Order]:
        return self.loader.orders(self.loader.position)


class _Reading(Dataset[tuple[Batch, Position]]):
    """Reads the rows of an order, in the loader's process or in a worker."""

    def __init__(self, layout: BatchLayout) -> None:
        self.layout = layout

    def __getitem__(self, order: Order) -> tuple[Batch, Position]:
        return self.layout.collate(order.rows, order.key), order.after


def _as_it_is(item: tuple[Batch, Position]) -> tuple[Batch, Position]:
    return item


def _leave_signals(worker: int) -> None:  # noqa: ARG001
    """Let workers ignore signals to the whole process group (Ctrl-C, the end of torchrun): the
    process that they work for handles them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
