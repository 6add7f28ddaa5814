"""Experiments on one departure. Each returns a cause only if its change makes the two programs
agree."""

from collections.abc import Callable

from ..evidence import Cause, Evidence
from .masks import another_mask
from .numbers import (
    another_number,
    another_sign,
    constant_added,
    constant_factor,
    number_added,
    rounded_table,
)
from .orders import (
    another_axis,
    another_order,
    complex_base,
    other_positions,
    rotary_base,
    rotary_layout,
    shifted_index,
    transposed_table,
)
from .projections import other_rows
from .structure import (
    another_function,
    another_tensor,
    missing_operation,
    other_weights,
    superfluous_operation,
    term_left_out,
)

ALL: tuple[Callable[[Evidence], Cause | None], ...] = (
    other_weights,
    another_mask,
    rounded_table,
    other_positions,
    shifted_index,
    rotary_base,
    complex_base,
    transposed_table,
    another_order,
    missing_operation,
    number_added,
    superfluous_operation,
    another_tensor,
    another_number,
    another_sign,
    another_axis,
    another_function,
    rotary_layout,
    constant_factor,
    constant_added,
    other_rows,
    term_left_out,
)
"""The experiments in the order in which they are tried. The most specific come first, because a
factor explains more departures than it causes."""


SINGLE = (shifted_index, another_number, another_axis)
"""Experiments that change one number of the port, so that its own operations compute the
reference's value."""


def find_single_cause(evidence: Evidence) -> Cause | None:
    """Return one change that explains what would otherwise need several."""
    return next(filter(None, (experiment(evidence) for experiment in SINGLE)), None)


def find_cause(evidence: Evidence) -> Cause | None:
    """Return the cause that the first successful experiment shows."""
    for experiment in ALL:
        cause = experiment(evidence)
        if cause is not None:
            return cause
    return None
