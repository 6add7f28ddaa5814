"""Mixes batches of two corpora, so that a model learns a second text and rehearses the first."""

from collections.abc import Iterator
from typing import Any

from clearhead.config.batches import BatchConfig
from clearhead.data.batches import Batch
from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.errors import DataError


def is_rehearsal(step: int, share: float) -> bool:
    """Tell whether this step, counted from 0, reads the first text. Such steps are evenly spread,
    and only the number of a step decides."""
    return int((step + 1) * share) > int(step * share)


class MixedLoader(Loader):
    """Mixes the batches of a corpus with those of `rehearsed`, which take a share of the steps.
    Epochs count passes over the corpus."""

    def __init__(
        self,
        corpus: Corpus,
        config: BatchConfig,
        *,
        rehearsed: Corpus,
        share: float,
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
        epochs: int | None = None,
    ) -> None:
        super().__init__(corpus, config, rank=rank, world=world, workers=workers, epochs=epochs)
        self.rehearsed = Loader(rehearsed, config, rank=rank, world=world, workers=workers)
        self.share = share

    def state(self) -> dict[str, Any]:
        """Return the positions in both corpora."""
        own = {"share": self.share, **self.rehearsed.state()}
        return {**super().state(), "rehearsed": own}

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume from the positions in both corpora. Raises if data or settings have changed."""
        super().load_state(state)
        own = state.get("rehearsed")
        if not isinstance(own, dict) or own.get("share") != self.share:
            raise DataError(
                "the steps up to this position rehearsed nothing, or another share; "
                "restore train.rehearse and train.rehearse_share, or start a new run"
            )
        self.rehearsed.load_state(own)

    def __iter__(self) -> Iterator[Batch]:
        new, first = super().__iter__(), iter(self.rehearsed)
        while True:
            step = self.position.step + self.rehearsed.position.step
            try:
                batch = next(first if is_rehearsal(step, self.share) else new)
            except StopIteration:  # the last epoch
                return
            yield batch
