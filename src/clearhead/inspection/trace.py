"""Reads and replaces a model's activations by name, while it runs.

    with trace(model) as t:
        model(source, target)
    t["decoder.layers.3.cross_attention.weights"]   # (batch, heads, query, key)

    with trace(model, edit=[zero("decoder.layers.2.cross_attention.heads", heads=[1])]):
        logits = model(source, target)              # the head is off

The model runs its own code: a trace is made of torch's hooks and of wrappers around three methods
of its attentions, and both are gone when the `with` is left. Reading changes no bit of the logits.
An edit that changes scores, weights or `head_outputs` takes the attention through the explicit
formula; all others leave every kernel in its place.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper
from torch.utils.hooks import RemovableHandle

from clearhead.errors import InputError, setting, type_of
from clearhead.inspection.attention_taps import Tap, per_head, tap_attention
from clearhead.inspection.edits import Counted, Edit, counted
from clearhead.inspection.sites import Site, TowerName, embedding_of, matching, sites
from clearhead.models import Model
from clearhead.parts.attention import MultiHeadAttention, merge_heads, split_heads
from clearhead.parts.cache import KeysValues
from clearhead.shapes import Bool, Float, Tensor


def trace(
    model: Model,
    read: str | Sequence[str] = "*",
    edit: Edit | Sequence[Edit] = (),
    *,
    grad: bool = False,
    explicit: bool = False,
) -> "Trace":
    """Read, and replace, a model's activations by name while it runs. `read` is a pattern of names
    or several; an empty list reads nothing. `grad` keeps what is read in the graph of gradients.
    Scores and weights are in that graph with `explicit`, which takes every attention through the
    formula."""
    several = isinstance(read, Iterable) and not isinstance(read, str)
    patterns = list(read) if several else [str(read)]
    edits = list(edit) if isinstance(edit, Iterable) else [edit]
    return Trace(model, patterns, edits, grad=grad, explicit=explicit)


class Trace:
    """The values that `trace` has read and the edits that it makes; `trace` creates it."""

    def __init__(
        self,
        model: Model,
        read: Sequence[str],
        edits: Sequence[Edit],
        *,
        grad: bool,
        explicit: bool,
    ) -> None:
        self.model = model
        self.explicit = explicit
        self._grad = grad
        self._sites = {site.name: site for site in sites(model)}
        _refuse(model)
        site_names = list(self._sites)
        self._read = {name for pattern in read for name in matching(pattern, site_names)}
        self._edits: dict[str, list[Edit]] = {name: [] for name in site_names}
        self._waiting = list(edits)
        for edit in edits:
            if not isinstance(edit, Edit):
                raise InputError(
                    f"edit={edit!r:.60} is {type_of(edit)}; give an edit, such as "
                    "ch.edit.zero(name)"
                )
            for name in matching(edit.name, site_names):
                edit.check(self._sites[name])
                self._edits[name].append(edit)
        self._calls: dict[str, list[Tensor]] = {}
        self._tokens: dict[TowerName, list[tuple[Counted, Bool[Tensor, "batch length"]]]] = {}
        self._keys: Counted | None = None
        self._handles: list[RemovableHandle | Tap] = []

    def __repr__(self) -> str:
        n_edits = len({id(edit) for edits in self._edits.values() for edit in edits})
        kind = type(self.model).__name__
        return f"<trace of {kind}: {len(self.names)} activations read, {n_edits} edits>"

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    @property
    def sites(self) -> list[Site]:
        """Return every place of the model, read or not."""
        return list(self._sites.values())

    @property
    def names(self) -> list[str]:
        """Return the names that have been read, in the order in which the model reaches them."""
        return [name for name in self._sites if name in self._read and self._stored(name)]

    def calls(self, name: str) -> list[Tensor]:
        """Return the value of each call. With a cache, a call has only the rows of its own
        queries."""
        matching(name, list(self._sites))
        stored = self._stored(name)
        if not stored:
            reason = "was not reached inside the trace"
            if not self._tokens:
                reason += (
                    ", because the model was not called there; call model(…) in the with block"
                )
            if name not in self._read:
                reason = "was not read; read=[…] of this trace leaves it out"
            raise InputError(f"{name} {reason}")
        if self._sites[name].how == "head_outputs" and name not in self._calls:
            output = self._sites[name].module
            assert isinstance(output, nn.Linear)
            return [per_head(heads, output.weight) for heads in stored]
        return stored

    def __getitem__(self, name: str) -> Tensor:
        calls = self.calls(name)
        if len(calls) > 1:
            raise InputError(
                f"{name} was reached {len(calls)} times; take calls({name!r}) for the list, or "
                f"joined({name!r}) for one tensor over all positions"
            )
        return calls[0]

    def __contains__(self, name: str) -> bool:
        return bool(self._stored(name))

    def joined(self, name: str) -> Tensor:
        """Join the calls of one decoding. Matrices grow with every call: keys that an earlier query
        could not see yet are 0 in weights and -inf in scores."""
        calls = self.calls(name)
        site = self._sites[name]
        if len({len(call) for call in calls}) > 1:
            rows = ", ".join(str(len(call)) for call in calls)
            raise InputError(
                f"{name} cannot be joined: its calls have {rows} rows; take calls({name!r})"
            )
        if site.form == "matrix":
            n_keys = max(call.shape[-1] for call in calls)
            fill = -torch.inf if site.how == "scores" else 0.0
            calls = [
                nn.functional.pad(call, (0, n_keys - call.shape[-1]), value=fill) for call in calls
            ]
        return torch.cat(calls, dim=1 if site.form == "stream" else 2)

    def real(self, tower: TowerName) -> Bool[Tensor, "batch length"]:
        """Return which tokens of a tower are not padding, over all calls."""
        if tower not in self._tokens:
            raise InputError(f"the {tower} did not run inside the trace; call it there")
        calls = [real for _, real in self._tokens[tower]]
        if len({len(real) for real in calls}) > 1:
            rows = ", ".join(str(len(real)) for real in calls)
            raise InputError(
                f"the calls of the {tower} have {rows} rows, which cannot be joined; decode with "
                f"{setting('beam', 1)}, one text at a time"
            )
        return torch.cat(calls, dim=1)

    def real_of(self, name: str) -> Bool[Tensor, "batch length"]:
        """Return which tokens of an activation are not padding."""
        return self.real(self._sites[name].tower)

    def _stored(self, name: str) -> list[Tensor]:
        stored = self._calls.get(name, [])
        if not stored and name in self._read and name.endswith(".head_outputs"):
            return self._calls.get(name.removesuffix("head_outputs") + "heads", [])
        return stored

    # ── the model's own places ───────────────────────────────────────────────────────────────

    def visit(self, site: Site, x: Tensor) -> Tensor:
        """Return the value with which the model continues at this place: x itself unless an edit
        changes it."""
        if self._edits[site.name]:
            tokens = self._tokens.get(site.tower)
            queries = tokens[-1][0] if tokens else None
            for edit in self._edits[site.name]:
                new = edit.apply(x, site, queries, self._keys)
                if new is not None:
                    self._waiting = [e for e in self._waiting if e is not edit]
                    x = new
        if self._keeps(site):
            self._calls.setdefault(site.name, []).append(x if self._grad else x.detach())
        return x

    def visit_matrix(self, site: Site, x: Tensor, real_keys: Tensor | None) -> Tensor:
        """Do the same for scores and weights, whose columns are all keys."""
        real = torch.ones_like(x[:1, 0, 0], dtype=torch.bool) if real_keys is None else real_keys
        self._keys = counted(real)
        return self.visit(site, x)

    def wants(self, site: Site) -> bool:
        """Tell whether this place is read or edited."""
        return self._keeps(site) or bool(self._edits[site.name]) or self.explicit

    def _keeps(self, site: Site) -> bool:
        """`head_outputs` are large: what is kept of them are the heads, until they are edited."""
        if site.how == "head_outputs":
            return site.name in self._read and bool(self._edits[site.name])
        outputs = site.name.removesuffix("heads") + "head_outputs"
        return site.name in self._read or (site.how == "heads in" and outputs in self._read)

    # ── putting the hooks on and off ─────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        if self._handles:
            raise InputError("this trace is running already; make another one")
        towers: list[TowerName] = [t for t in ("encoder", "decoder") if hasattr(self.model, t)]
        for tower in towers:
            _, embedding = embedding_of(self.model, tower)
            self._handles.append(embedding.register_forward_pre_hook(self._counter(tower)))
        if any(edit.rows is not None for edit in self._waiting) and "decoder" in towers:
            decoder: nn.Module = self.model.decoder  # type: ignore[union-attr]
            hook = decoder.register_forward_pre_hook(_refuse_rows, with_kwargs=True)
            self._handles.append(hook)
        self._handles.extend(self._hooks())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if kind is None and self._waiting:
            edit = self._waiting[0]
            raise InputError(f"{edit} changed nothing: {edit.why_never(self._longest(edit))}")

    def _longest(self, edit: Edit) -> int:
        """Return the tokens of the longest sequence that has run in the towers of an edit."""
        sites = [self._sites[name] for name, edits in self._edits.items() if edit in edits]
        calls = [call for site in sites for call, _ in self._tokens.get(site.tower, [])]
        return max((int(total) for call in calls for total in call.total.flatten()), default=0)

    def _hooks(self) -> Iterator[RemovableHandle | Tap]:
        matrices: dict[nn.Module, dict[str, Site]] = {}
        for site in self._sites.values():
            if site.how in ("scores", "weights"):
                matrices.setdefault(site.module, {})[site.how] = site
            elif self._keeps(site) or self._edits[site.name]:
                yield self._hook(site)
        for attention, pair in matrices.items():
            if self.wants(pair["scores"]) or self.wants(pair["weights"]):
                assert isinstance(attention, MultiHeadAttention)
                yield tap_attention(attention, self, pair["scores"], pair["weights"])

    def _hook(self, site: Site) -> RemovableHandle | Tap:
        module, visit, n_heads = site.module, self.visit, site.n_heads

        def before(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            new = visit(site, args[0])
            return None if new is args[0] else (new, *args[1:])

        def after(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor | None:
            new = visit(site, output)
            return None if new is output else new

        def heads_in(_: nn.Module, args: tuple[Tensor]) -> tuple[Tensor] | None:
            heads = split_heads(args[0], n_heads)
            new = visit(site, heads)
            return None if new is heads and not self._grad else (merge_heads(new),)

        def heads_out(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor | None:
            heads = split_heads(output, n_heads)
            new = visit(site, heads)
            return None if new is heads and not self._grad else merge_heads(new)

        def into_the_sublayer(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            x, sublayer = args
            return x, lambda read: sublayer(visit(site, read))

        def head_outputs(linear: nn.Module, args: tuple[Tensor], _: Tensor) -> Tensor | None:
            assert isinstance(linear, nn.Linear)
            outputs = per_head(split_heads(args[0], n_heads), linear.weight)
            new = visit(site, outputs)
            if new is outputs:
                return None
            return new.sum(dim=1) if linear.bias is None else new.sum(dim=1) + linear.bias

        match site.how:
            case "input":
                return module.register_forward_pre_hook(before)
            case "output":
                return module.register_forward_hook(after)
            case "heads in":
                return module.register_forward_pre_hook(heads_in)
            case "heads out":
                return module.register_forward_hook(heads_out)
            case "sublayer":
                return module.register_forward_pre_hook(into_the_sublayer)
            case "head_outputs":
                return module.register_forward_hook(head_outputs)
            case "queries_of":
                return Tap(module, "queries_of", lambda queries: visit(site, queries))
            case "keys_values_of":

                def keys(seen: KeysValues) -> KeysValues:
                    return seen._replace(keys=visit(site, seen.keys))

                return Tap(module, "keys_values_of", keys)
            case _:
                raise AssertionError(f"{site.how} has a hook of its own")

    def _counter(self, tower: TowerName) -> Any:
        """Count the tokens of each call. The positions that a cache gives continue from call to
        call, so the first real token's position says how many tokens came before."""

        def count(_: nn.Module, args: tuple[Any, ...]) -> None:
            tokens, positions, real = args[:3]
            if real is None:
                real = tokens.new_ones(tokens.shape[:2], dtype=torch.bool)
            first = real.int().argmax(dim=1, keepdim=True)
            before = positions.expand(len(real), -1).gather(1, first)
            self._tokens.setdefault(tower, []).append((counted(real, before), real))

        return count


def mean_of(
    model: Model, name: str, runs: Callable[[], Any] | Sequence[Callable[[], Any]]
) -> Float[Tensor, "..."]:
    """Return the mean of an activation over the real tokens of several runs, as a vector, or a
    vector for each head, for `put`. The runs are functions without arguments that call the
    model."""
    sums, n_tokens = None, 0
    for run in [runs] if callable(runs) else runs:
        with trace(model, read=[name]) as t, torch.no_grad():
            run()
        if name not in t._sites:
            raise InputError(
                f"name={name!r:.60} is not one activation; ch.edit.names(model) lists them"
            )
        site = t._sites[name]
        if site.form == "matrix":
            raise InputError(
                f"{name} has a column for each key, so it has no mean over texts; take another "
                "name from ch.edit.names(model)"
            )
        real = t.real(site.tower)
        x = t.joined(name)
        lengths = real if site.form == "stream" else real[:, None]
        part = x.masked_fill(~lengths[..., None], 0.0).sum(dim=(0, x.dim() - 2), keepdim=True)
        sums = part if sums is None else sums + part
        n_tokens += int(real.sum())
    if sums is None or not n_tokens:
        raise InputError(f"the mean of {name} needs at least one token; give a run that has one")
    return sums / n_tokens


def checked_trace(t: Trace) -> Trace:
    """Return the trace that was given. Anything else is an error."""
    if not isinstance(t, Trace):
        raise InputError(
            f"t={t!r:.60} is {type_of(t)}; give the trace t of: with ch.trace(model) as t"
        )
    return t


def _compiled(module: nn.Module) -> bool:
    # Importing torch's compiler takes two seconds. As long as it has not been imported, nothing is
    # compiled.
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    wrapped = compiler is not None and isinstance(module, compiler.OptimizedModule)
    return wrapped or module._compiled_call_impl is not None


def _refuse(model: nn.Module) -> None:
    """Raises for models in which other code than the modules computes."""
    for module in model.modules():
        if _compiled(module):
            raise InputError("a compiled model cannot be traced; trace the model it was made from")
        if isinstance(module, CheckpointWrapper):
            raise InputError(
                "a model that computes its activations twice (recompute) cannot be traced; "
                "build it without recompute"
            )
    if any(type(parameter.data).__name__ == "DTensor" for parameter in model.parameters()):
        raise InputError("a model in shards cannot be traced; load its checkpoint in one process")


def _refuse_rows(_: nn.Module, __: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if kwargs.get("cache") is not None:
        raise InputError(
            "rows cannot be chosen while decoding, where rows change places; decode each text "
            "in a call of its own"
        )
