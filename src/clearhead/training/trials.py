"""Times steps of runs that are then discarded, all with one number of threads, which is chosen
once."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from clearhead.config import Recipe
from clearhead.data.corpus import Corpus
from clearhead.models.own_parts import NONE, OwnParts
from clearhead.training.distributed import joined_ranks
from clearhead.training.plan import TrainingPlan, make_plan
from clearhead.training.run import open_trial
from clearhead.training.threads import (
    BUSY,
    ThreadChoice,
    choose_threads,
    computing_with,
    free_share,
)

_stages = logging.getLogger("clearhead.progress")


class Trials:
    """Makes plans of recipes, which are measured one after the other."""

    def __init__(
        self,
        threads: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
        own_parts: OwnParts = NONE,
    ) -> None:
        self.clock, self.own_parts = clock, own_parts
        self.choice: ThreadChoice | None = None
        if threads is not None:
            self.choice = ThreadChoice(threads=threads, why="as given")

    def plan(self, recipe: Recipe, corpus: Corpus) -> TrainingPlan:
        """Return the plan of a run of the recipe."""
        with joined_ranks(recipe.train) as ranks:
            model = recipe.model
            _stages.info(f"timing steps of a model of width {model.d_model if model else '?'}")
            if self.choice is None:
                self.choice = choose_threads(recipe, corpus, ranks, self.own_parts)
            with computing_with(self.choice.threads):
                trial = open_trial(recipe, corpus, ranks, self.own_parts)
                plan = make_plan(trial, clock=self.clock)
        return replace(plan, threads=self.choice)

    @property
    def reasons(self) -> list[str]:
        """Return sentences about the threads, and about a machine that other programs keep busy."""
        choice = self.choice
        if choice is None:  # nothing was timed
            return []
        # As multiples, because the model whose steps were timed first need not be the chosen one.
        why = choice.compared or choice.why
        lines = [f"Threads: {choice.threads}, {why}."] if why else []
        share = free_share()
        if share < BUSY:
            lines.append(
                "Busy machine: other programs are using the processor, and this one gets "
                f"{share:.0%} of a core. The times are those of the busy machine; when it is idle, "
                "make the recipe again, and the same minutes give more steps."
            )
        return lines
