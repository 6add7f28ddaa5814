"""Checks of exercise 4."""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.course.checking import (
    Checks,
    FunctionProbe,
    Learned,
    close,
    distance,
    gradient_distance,
    require,
    require_unchanged,
    scattered,
)
from clearhead.course.exercises.cross_attention import solution

CHECKS = Checks()


def _everything(batch: int, keys: int) -> Tensor:
    return torch.ones(batch, 1, keys, dtype=torch.bool)


def _ragged() -> Tensor:
    """Return four padded sentences of 7, 6, 5 and 4 tokens. There are as many sentences as heads,
    so that a mask without an axis for heads raises no error and hides the wrong tokens."""
    allowed = _everything(4, 7)
    for row in range(4):
        allowed[row, 0, 7 - row :] = False
    return allowed


def _by_query() -> Tensor:
    """Return a mask that differs between the 5 queries: query i sees i + 3 of 7 keys."""
    return torch.ones(2, 5, 7, dtype=torch.bool).tril(2)


def _probe(attention: Any) -> object:
    """Call the answer with two lengths, with four padded sentences, and with a mask for each
    query."""
    one, four = attention(12, 3), attention(12, 4)
    x, source = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    ragged = four(torch.randn(4, 5, 12), torch.randn(4, 7, 12), _ragged())
    return one(x, source, _everything(2, 7)), ragged, one(x, source, _by_query())


def probe_nothing(m: Any) -> Tensor:
    """Call the answer with a mask in which query 0 may see nothing."""
    m = m(12, 3) if isinstance(m, type) else m
    allowed = _by_query()
    allowed[:, 0] = False
    return m(torch.randn(2, 5, 12), torch.randn(2, 7, 12), allowed)


PROBES: dict[str, FunctionProbe] = {"CrossAttention": _probe}


@CHECKS.about("CrossAttention")
def lengths(it: Learned) -> None:
    """Source and target may differ in length: 5 queries read 7 keys."""
    found = it["CrossAttention"](12, 3)(
        torch.randn(2, 5, 12), torch.randn(2, 7, 12), _everything(2, 7)
    )
    require(found.shape == (2, 5, 12), found=tuple(found.shape))


@CHECKS.about("CrossAttention")
def inputs_unchanged(it: Learned) -> None:
    """The inputs stay unchanged, because the residual connection still needs x."""
    with torch.no_grad():
        m = it["CrossAttention"](12, 3)
        require_unchanged(m, torch.randn(2, 5, 12), torch.randn(2, 7, 12), _everything(2, 7))


@CHECKS.about("CrossAttention")
def source_matters(it: Learned) -> None:
    """Another source gives another output."""
    m, x, source = it["CrossAttention"](12, 3), torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    everything = _everything(2, 7)
    require(not close(m(x, torch.randn(2, 7, 12), everything), m(x, source, everything)))


@CHECKS.about("CrossAttention")
def order_of_the_source(it: Learned) -> None:
    """The order of the source does not matter: attention does not see it."""
    m, x, source = it["CrossAttention"](12, 3), torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    everything = _everything(2, 7)
    require(close(m(x, source[:, order], everything), m(x, source, everything), 1e-4))


@CHECKS.about("CrossAttention")
def each_query_by_itself(it: Learned) -> None:
    """Query 2 changes only output 2."""
    m, x, source = it["CrossAttention"](12, 3), torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    other = x.clone()
    other[:, 2] = torch.randn(2, 12)
    everything = _everything(2, 7)
    change = (m(other, source, everything) - m(x, source, everything)).abs().amax((0, 2))
    rows = (change > 1e-6).nonzero().flatten().tolist()
    require(rows == [2], rows=", ".join(map(str, rows)))


@CHECKS.about("CrossAttention")
def masked_source(it: Learned) -> None:
    """The content of hidden tokens does not matter."""
    m, x, source = it["CrossAttention"](12, 4), torch.randn(4, 5, 12), torch.randn(4, 7, 12)
    allowed = _ragged()
    other = torch.where(allowed.transpose(1, 2), source, 5 * torch.randn(4, 7, 12))
    change = (m(x, other, allowed) - m(x, source, allowed)).abs().max()
    require(change < 1e-4, change=f"{change:.2f}")


@CHECKS.about("CrossAttention")
def same_as_torch(it: Learned) -> None:
    """The output agrees with nn.MultiheadAttention with the same weights."""
    m, x, source = it["CrossAttention"](12, 3), torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    theirs = torch_attention(m, 12, 3)
    change = (m(x, source, _everything(2, 7)) - theirs(x, source, source)[0]).abs().max()
    require(change < 1e-5, change=f"{change:.2g}")


@CHECKS.about("CrossAttention")
def same_under_a_mask(it: Learned) -> None:
    """The output also agrees with torch's if each query has a mask of its own."""
    m, x, source = it["CrossAttention"](12, 3), torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    hidden = ~_by_query().repeat_interleave(3, dim=0)  # torch has one for each head
    theirs = torch_attention(m, 12, 3)(x, source, source, attn_mask=hidden)[0]
    change = (m(x, source, _by_query()) - theirs).abs().max()
    require(change < 1e-5, change=f"{change:.2g}")


@CHECKS.about("CrossAttention")
def itself_as_source(it: Learned) -> None:
    """With x as its own source and a causal mask, the result is self-attention."""
    m, x = it["CrossAttention"](12, 3), scattered(torch.randn(2, 5, 12))
    past = torch.ones(2, 5, 5, dtype=torch.bool).tril()
    change = distance(m(x, x, past), reference(m, 12, 3)(x, x, past))
    require(change < 1e-5, change=f"{change:.2g}")


@CHECKS.about("CrossAttention")
def every_call_anew(it: Learned) -> None:
    """No call depends on an earlier one: another mask of the same shape follows, then other lengths
    and sentences."""
    m = it["CrossAttention"](12, 4)
    calls = ((2, 5, 7), (2, 5, 7), (3, 1, 9), (1, 8, 2))
    for call, (batch, queries, keys) in enumerate(calls, start=1):
        x, source = torch.randn(batch, queries, 12), torch.randn(batch, keys, 12)
        allowed = torch.rand(batch, queries, keys) > 0.3
        change = distance(m(x, source, allowed), reference(m, 12, 4)(x, source, allowed))
        require(change < 1e-5, call=call, change=f"{change:.2g}")


@CHECKS.about("CrossAttention")
def nothing_allowed(it: Learned) -> None:
    """A query that may see nothing reads zeros, so its output is the bias of the output matrix."""
    m = it["CrossAttention"](12, 3)
    found = probe_nothing(m)[:, 0]
    require(distance(found, m.output.bias.expand(2, 12)) < 1e-5, found=f"{found[0, 0]:.2f}")


@CHECKS.about("CrossAttention")
def large_scores(it: Learned) -> None:
    """Scores of several hundred give the right output."""
    m, x, source = it["CrossAttention"](12, 3), torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    x, source = 50 * x, 50 * source
    theirs = torch_attention(m, 12, 3)(x, source, source)[0]
    change = distance(m(x, source, _everything(2, 7)), theirs)
    require(change < 0.05, change=f"{change:.2g}")


@CHECKS.about("CrossAttention")
def gradient(it: Learned) -> None:
    """The gradients of both sequences and of every matrix agree."""
    m, allowed = it["CrossAttention"](12, 4), _ragged()
    change = gradient_distance(
        lambda x, source: m(x, source, allowed),
        lambda x, source: reference(m, 12, 4)(x, source, allowed),
        torch.randn(4, 2, 12),
        torch.randn(4, 7, 12),
        parameters=list(m.parameters()),
    )
    require(change < 1e-4, change=f"{change:.2g}")


def reference(m: Any, d_model: int, n_heads: int) -> solution.CrossAttention:
    """Return the solution with the learner's own matrices."""
    right = solution.CrossAttention(d_model, n_heads)
    right.query, right.key, right.value, right.output = m.query, m.key, m.value, m.output
    return right


def torch_attention(m: Any, d_model: int, n_heads: int) -> nn.MultiheadAttention:
    """Return torch's module with the weights of the learner's module."""
    theirs = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
    roles = (m.query, m.key, m.value)
    theirs.in_proj_weight.data = torch.cat([role.weight.data for role in roles])
    theirs.in_proj_bias.data = torch.cat([role.bias.data for role in roles])
    theirs.out_proj.load_state_dict(m.output.state_dict())
    return theirs
