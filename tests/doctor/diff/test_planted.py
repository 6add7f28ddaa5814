"""A planted bug is found at its line, and named for what it is."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from _pytest.mark import ParameterSet

from clearhead.doctor.diff import assert_same, diff
from clearhead.doctor.diff.sides import first_output
from tests.doctor.diff.planted import BUGS, Bug, kind_of, port, reference

QUICK = {"gpt2/scale", "llama/base", "bert/no_scale"}


def name_of(bug: Bug) -> str:
    return f"{bug.family}/{bug.name}"


def found(bugs: tuple[Bug, ...], folder: Path):
    family = bugs[0].family
    original = reference(family, "sdpa")
    return diff(original, port(family, original, folder, *bugs), kind=kind_of(family), steps=False)


def marks(bug: Bug) -> list[pytest.MarkDecorator]:
    missed = [pytest.mark.xfail(reason=bug.miss, strict=True)] if bug.miss else []
    return missed if name_of(bug) in QUICK else [*missed, pytest.mark.slow]


@pytest.mark.parametrize("bug", [pytest.param(b, marks=marks(b)) for b in BUGS], ids=name_of)
def test_a_bug_is_found_at_its_line_and_named(bug: Bug, tmp_path: Path):
    report = found((bug,), tmp_path)
    assert not report.same
    first = report.departures[0]
    assert first.line is not None and first.line.line in bug.lines(), str(report)
    assert first.cause is not None and first.cause.kind in bug.causes, str(report)


def both_fit(one: Bug, other: Bug) -> bool:
    """Whether both edits can be made in one source."""
    return not (one.old in other.old or other.old in one.old)


# In the first layer of each program and far apart: the second is behind the first.
TWO = [
    pair
    for family in ("gpt2", "llama", "bert", "t5")
    for pair in pairwise([b for b in BUGS if b.family == family])
    if not set(pair[0].old.splitlines()) & set(pair[1].old.splitlines())
]


MISSED = {
    "gpt2/no_transpose+gpt2/no_residual",
    "gpt2/residual_of_norm+gpt2/no_final_norm",
    "t5/no_output_scale+t5/bidirectional",
    "t5/buckets+t5/layer_norm",
}


def pairs() -> Iterator[ParameterSet]:
    for pair in TWO[::2]:
        name = "+".join(map(name_of, pair))
        missed = pytest.mark.xfail(reason="one of the two is not found", strict=True)
        if both_fit(*pair):
            yield pytest.param(pair, id=name, marks=[missed] if name in MISSED else [])


@pytest.mark.slow
@pytest.mark.parametrize("bugs", pairs())
def test_a_second_bug_is_found_behind_the_first(bugs: tuple[Bug, Bug], tmp_path: Path):
    source = port_lines(bugs, tmp_path)
    if hides_the_other(bugs, tmp_path):
        pytest.skip("one of the two changes nothing beside the other: there is nothing to find")
    lines = {d.line.line for d in found(bugs, tmp_path).departures if d.line is not None}
    for bug in bugs:
        assert lines & source[bug.name], (bug.name, lines)


def hides_the_other(bugs: tuple[Bug, Bug], folder: Path) -> bool:
    """Whether the logits with both are those with one of them alone: what is not run, or is undone,
    changes nothing."""
    family = bugs[0].family
    original = reference(family)
    tokens = torch.arange(4, 24).reshape(2, 10)
    given = (tokens, tokens.flip(1)) if family == "t5" else (tokens,)
    ports = [port(family, original, folder, *some) for some in (bugs, bugs[:1], bugs[1:])]
    both, *alone = (first_output(made(*given)) for made in ports)
    return any(torch.allclose(both, one, atol=1e-5) for one in alone)


def port_lines(bugs: tuple[Bug, ...], folder: Path) -> dict[str, set[int]]:
    """Where each edit stands once both are made."""
    family = bugs[0].family
    port(family, reference(family), folder, *bugs)
    text = (folder / f"{'_'.join([family, *(b.name for b in bugs)])}.py").read_text("utf-8")
    whole = text.splitlines()
    lines: dict[str, set[int]] = {}
    for bug in bugs:
        marks = [line for line in bug.new.splitlines() if line.strip()]
        at = {n for n, line in enumerate(whole, 1) if any(mark.strip() in line for mark in marks)}
        lines[bug.name] = {n + d for n in at or bug.lines() for d in range(-1, bug.near + 1)}
    return lines


def test_a_port_in_a_test_suite_fails_with_the_report(tmp_path: Path):
    bug = next(b for b in BUGS if name_of(b) == "bert/gelu_tanh")
    original = reference("bert")
    assert_same(original, port("bert", original, tmp_path), kind="encoder")
    with pytest.raises(AssertionError, match="GELU"):
        assert_same(original, port("bert", original, tmp_path, bug), kind="encoder")


def test_the_models_and_the_random_generator_are_left_as_they_were(tmp_path: Path):
    original = reference("llama")
    copy = port("llama", original, tmp_path)
    before = {name: tensor.clone() for name, tensor in copy.state_dict().items()}
    torch.manual_seed(7)
    state = torch.get_rng_state()
    diff(original, copy, kind="decoder")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() == torch.float32
    assert all(torch.equal(tensor, before[name]) for name, tensor in copy.state_dict().items())
