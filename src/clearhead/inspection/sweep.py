"""Runs a model many times, each time with one edit, and makes a table of numbers: patching and
ablation."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from clearhead.errors import InputError, type_of
from clearhead.inspection.edits import Edit, counted, put, zero
from clearhead.inspection.pictures import heatmap_text
from clearhead.inspection.sites import names
from clearhead.inspection.trace import Trace, checked_trace, trace
from clearhead.models import Model
from clearhead.shapes import Float, Tensor

RunModel = Callable[[], Tensor]
OutputMetric = Callable[[Tensor], Tensor | float]


class Grid(NamedTuple):
    """The metric for each edit of a sweep."""

    values: Float[Tensor, "row column"]
    rows: list[str]
    columns: list[str]
    unedited: float
    """The metric of the run without any edit."""

    def show(self) -> str:
        """Show the change that each edit makes, as text. The darkest cell changes most."""
        return heatmap_text(self.values - self.unedited, self.rows, self.columns)


def sweep(
    model: Model,
    run: RunModel,
    metric: OutputMetric,
    *,
    edits: Sequence[Sequence[Edit]],
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> Grid:
    """Call the model with each edit. `run` calls the model and returns a value, which `metric`
    turns into a number. Each cell of `edits` is a pass of its own with that one edit."""
    if not edits or not edits[0] or len({len(row) for row in edits}) > 1:
        raise InputError("edits must be rows of equal length; give at least one row with one edit")

    def measured(edit: Sequence[Edit]) -> float:
        with torch.no_grad(), trace(model, read=[], edit=edit):
            value = metric(run())
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):
            shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
            raise InputError(
                f"the metric gave {type_of(value)}{shape}; it must give one number"
            ) from None

    unedited = measured([])
    values = torch.tensor([[measured([cell]) for cell in row] for row in edits])
    return Grid(
        values,
        list(rows) if rows is not None else [row[0].name for row in edits],
        list(columns) if columns is not None else [str(i) for i in range(len(edits[0]))],
        unedited,
    )


def patching(
    model: Model,
    run: RunModel,
    metric: OutputMetric,
    *,
    source: Trace,
    pattern: str,
    positions: Sequence[int],
) -> Grid:
    """Replace activations by those of another run, one name and one position at a time, to see
    which of them carries what the other run knew. `source` is the trace of the other run."""
    places = names(model, pattern)
    checked_trace(source)
    matrices = [name for name in places if name.endswith((".scores", ".weights"))]
    if matrices:
        with torch.no_grad(), trace(model, read=[]) as own:
            run()
        for name in matrices:
            _check_no_padding(source, name)
            _check_no_padding(own, name)
    edits = [[_from(source, name, i) for i in positions] for name in places]
    return sweep(model, run, metric, edits=edits, columns=[str(i) for i in positions])


def _from(source: Trace, name: str, position: int) -> Edit:
    """Return the token at that position of the other run, wherever its padding is."""
    value, real = source[name], source.real_of(name)
    length = value.dim() - 2
    if real.shape[1] == value.shape[length]:
        chosen = counted(real).chosen([position])
        if not chosen.any(dim=1).all():
            raise InputError(
                f"position {position} is beyond the other run, which has "
                f"{int(real.sum(dim=1).min())} positions; choose positions that both runs have"
            )
        column = chosen.int().argmax(dim=1).view(-1, *[1] * (value.dim() - 1))
        value = value.take_along_dim(column, dim=length)
    return put(name, value, positions=[position])


def _check_no_padding(run: Trace, name: str) -> None:
    keys = [run.real("encoder")] if ".cross_attention." in name else []
    if not all(real.all() for real in (run.real_of(name), *keys)):
        raise InputError(
            f"{name} cannot be taken from or put into a run with padding: its keys would have "
            "other positions; run one text at a time"
        )


def head_ablation(
    model: Model,
    run: RunModel,
    metric: OutputMetric,
    *,
    pattern: str = "*attention.heads",
    means: dict[str, Tensor] | None = None,
) -> Grid:
    """Switch off each head in turn. The table has a row for each attention and a column for each
    head. With `means` (name → `mean_of`), a head is replaced by its mean, which says more than zero
    does."""
    places = names(model, pattern)
    n_heads = model.config.n_heads
    if means is not None and (missing := [name for name in places if name not in means]):
        raise InputError(f"means has no value for {missing[0]}; give one by ch.mean_of")
    edits = [
        [
            zero(name, heads=[head]) if means is None else put(name, means[name], heads=[head])
            for head in range(n_heads)
        ]
        for name in places
    ]
    return sweep(model, run, metric, edits=edits)
