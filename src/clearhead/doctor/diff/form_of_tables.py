"""Finds the base with which a table of rotary frequencies, angles, cosines or sines was made."""

import math

import torch
from torch import Tensor


def base_of(table: Tensor) -> float | None:
    """Return the base b of frequencies b^(-i/n), read from the frequencies themselves, their
    powers, or the second row of a table of angles, cosines or sines; None if the table is none of
    these."""
    table = table.squeeze()
    rows: list[Tensor] = []
    if table.dim() == 1:
        rows.append(table)
    while table.dim() > 2:
        table = table[0]
    if table.dim() == 2 and table.shape[0] > 1:
        # Sinusoids of positions: sines in the first half, or in every other column.
        for part in (table, table[:, : table.shape[1] // 2], table[:, ::2]):
            first, second = part[0], part[1]
            if bool((first.abs() < 1e-9).all()):
                rows += [second, second.clamp(-1, 1).asin()]
            if bool(((first - 1).abs() < 1e-9).all()):
                rows.append(second.clamp(-1, 1).acos())
    for row in rows:
        for part in (row, row[: len(row) // 2], row[::2]):
            for frequencies in (part, 1 / part):
                base = _fitted(frequencies)
                if base is not None:
                    return base
    return None


def _fitted(frequencies: Tensor) -> float | None:
    n = len(frequencies)
    if n < 3 or not bool((frequencies > 0).all()) or not bool(torch.isfinite(frequencies).all()):
        return None
    logs = frequencies.double().log()
    step = float(logs[1] - logs[0])
    expected = torch.arange(n, dtype=torch.float64) * step
    if step >= 0 or abs(float(logs[0])) > 1e-4:
        return None
    if float((logs - expected).abs().max()) > 1e-3 * abs(float(expected[-1])):
        return None
    return math.exp(-step * n)
