"""Will it fit, how long will it take, what does it cost, what breaks: a training run on many
accelerators from arithmetic alone. Nothing is allocated and no accelerator is needed."""

import math
from dataclasses import dataclass, replace

from clearhead.config import ModelConfig, Recipe, TrainConfig
from clearhead.config.tasks import Assumptions, check_utilisation
from clearhead.errors import ClearheadError, ConfigError, InputError, Verbatim, setting
from clearhead.scale.accelerators import Accelerator, accelerator
from clearhead.scale.failures import best_interval, goodput
from clearhead.scale.figures import Figure, assumed, computed, measured
from clearhead.scale.layouts import LayoutCandidate, candidate, fastest, layouts
from clearhead.scale.memory import FP32, STATES, RankLayout
from clearhead.scale.operations import flops_per_token, inventory
from clearhead.scale.planned import PlannedRun, Utilisation
from clearhead.scale.published import published_family
from clearhead.scale.report import plan_text

ANY_UTILISATION = 0.35
"""The utilisation that is assumed if the table of accelerators names no published one."""

WITHOUT_RECIPE = TrainConfig(precision="bf16", loss_chunk=1024)
"""How a model alone is planned, unless other settings are given."""

VOCABULARY = 256
"""The vocabulary of a recipe that does not name its size."""
MOST = {"gpus": 10**7, "length": 10**9, "batch_tokens": 10**10}
"""Limits far beyond what anybody has trained with."""


@dataclass(frozen=True, kw_only=True)
class ClusterPlan(PlannedRun):
    """A planned run; `print` shows all of it."""

    def __str__(self) -> str:
        return plan_text(self)


def plan(
    what: Recipe | ModelConfig,
    *,
    name: str = "model",
    train: TrainConfig | None = None,
    gpus: int,
    kind: str,
    tokens: float | None = None,
    length: int | None = None,
    batch_tokens: int | None = None,
    utilisation: float | str | None = None,
    assumptions: Assumptions | None = None,
) -> ClusterPlan:
    """A recipe brings its training settings, length, batch and number of tokens; a model alone is
    planned with AdamW, bf16 and chunked logits, and needs `tokens`. `train` replaces the training
    settings of either."""
    assumptions = assumptions or Assumptions()
    accelerators = accelerator(kind)
    model, own, own_length, own_batch = _settings(what)
    train = train or own
    length = own_length if length is None else length
    batch = own_batch if batch_tokens is None else batch_tokens
    if tokens is None and isinstance(what, ModelConfig):
        raise InputError(
            f"{setting('tokens')} is missing: a preset has no recipe that says how long it trains; "
            f"try {setting('tokens', Verbatim('15e12'))}"
        )
    total = train.steps * batch if tokens is None else tokens
    _check_sizes(gpus, length, batch, total)
    used = _utilisation(utilisation, accelerators, train)
    rows = max(1, batch // length)
    candidates = _candidates(
        model,
        train,
        accelerators,
        gpus=gpus,
        rows=rows,
        length=length,
        utilisation=used.figure.value,
    )
    if not candidates:
        raise _no_layout(model, gpus, rows, length)
    batch = rows * length
    run = _Run(model, train, accelerators, gpus, length, batch, total, used, assumptions)
    return ClusterPlan(
        name=what.name if isinstance(what, Recipe) else name,
        model=model,
        train=train,
        written=what.train if isinstance(what, Recipe) else TrainConfig(),
        gpus=gpus,
        kind=accelerators,
        length=length,
        batch_tokens=batch,
        utilisation=used,
        candidates=tuple(candidates),
        best=fastest(candidates),
        least=min(candidates, key=lambda option: option.memory.peak),
        figures=_figures(run),
    )


def _check_sizes(gpus: int, length: int, batch_tokens: int, tokens: float) -> None:
    for field_name, value in (("gpus", gpus), ("length", length), ("batch_tokens", batch_tokens)):
        if value < 1:
            raise ConfigError(
                field_name, value, "must be at least 1", f"try {setting(field_name, 1)}"
            )
        if value > (most := MOST[field_name]):
            raise ConfigError(field_name, value, f"must be at most {most:,}", "write a smaller one")
    if not 0 < tokens < math.inf:
        raise ConfigError(
            "tokens",
            tokens,
            "must be above 0 and finite",
            f"try {setting('tokens', Verbatim('1e9'))}",
        )


def _candidates(
    model: ModelConfig,
    train: TrainConfig,
    kind: Accelerator,
    *,
    gpus: int,
    rows: int,
    length: int,
    utilisation: float,
) -> list[LayoutCandidate]:
    """The layouts that share the rows evenly; tensor parallel is for what fits in no other way."""
    candidates: list[LayoutCandidate] = []
    for divided in (False, True):
        if any(option.fits for option in candidates):
            break
        candidates += [
            candidate(model, train, layout, kind=kind, length=length, utilisation=utilisation)
            for layout in layouts(model, gpus, rows, kind.per_node)
            if (layout.tensor > 1) is divided and _trains(train, layout)
        ]
    return candidates


@dataclass(frozen=True)
class _Run:
    model: ModelConfig
    train: TrainConfig
    kind: Accelerator
    gpus: int
    length: int
    batch_tokens: int
    tokens: float
    utilisation: Utilisation
    assumptions: Assumptions


def _figures(run: _Run) -> dict[str, Figure]:
    parameters = inventory(run.model).total
    count = computed(parameters, "", "of the model, each tensor once")
    return {"parameters": count, **_time(run, parameters), **_data(run)}


def _time(run: _Run, parameters: int) -> dict[str, Figure]:
    """Checkpoints, failures, and with them time and cost."""
    assumptions, used = run.assumptions, run.utilisation
    per_token = flops_per_token(run.model, run.length, used.convention)
    speed = run.gpus * run.kind.flops * used.figure.value / per_token
    rate = computed(speed, "tokens/s", "gpus × peak × utilisation / FLOP per token", used.figure)

    states = 1 + STATES[run.train.optimizer] + (run.train.ema is not None)
    size = computed(FP32 * states * parameters, "bytes", "weights and optimizer in fp32")
    nodes = -(-run.gpus // run.kind.per_node)
    writes = assumed(
        nodes * assumptions.save_gb_per_second * 1e9, "bytes/s", setting("save_gb_per_second")
    )
    save = computed(size.value / writes.value, "s", "size / write speed of all nodes", writes)
    apart = assumed(
        3600 * assumptions.gpu_hours_per_failure / run.gpus,
        "s",
        f"{setting('gpu_hours_per_failure')} / gpus",
    )
    interval = computed(
        best_interval(save.value, apart.value), "s", "Young–Daly: √(2 · save · failures)", apart
    )
    steps = max(1, round(interval.value * speed / run.batch_tokens))
    useful = goodput(interval.value, save.value, 60 * assumptions.restart_minutes, apart.value)
    if not useful:
        rule = f"leaves {apart.value:.3g} s between two failures, too few for a checkpoint"
        remedy = f"try {Assumptions.gpu_hours_per_failure:g}, or fewer gpus"
        raise ConfigError("gpu_hours_per_failure", assumptions.gpu_hours_per_failure, rule, remedy)
    lost = 1.0 if used.includes_interruptions else useful
    seconds = run.tokens / speed / lost
    why = "tokens / speed"
    why += ", interruptions are in the utilisation" if lost == 1 else " / goodput"
    duration = computed(seconds, "s", why, rate, apart)
    hours = computed(run.gpus * seconds / 3600, "GPU-hours", "gpus × time", duration)
    dollars = run.kind.dollars_per_hour if assumptions.price is None else assumptions.price
    price = assumed(dollars, "$", f"for a GPU-hour; {setting('price')}")
    return {
        "steps": computed(run.tokens / run.batch_tokens, "", "tokens / batch"),
        "FLOP per token": computed(per_token, "", f"convention {used.convention!r}"),
        "utilisation": used.figure,
        "speed": rate,
        "checkpoint": size,
        "time to save": save,
        "between failures": apart,
        "save every": interval,
        "train.save_every": computed(steps, "steps", "save every / time of a step", apart),
        "goodput": computed(useful, "%", "share of the time that trains (Daly)", apart),
        "time": duration,
        "accelerator-hours": hours,
        "price": price,
        "cost": computed(hours.value * dollars, "$", "accelerator-hours × price", price),
    }


def _data(run: _Run) -> dict[str, Figure]:
    assumptions = run.assumptions
    width = 2 if run.model.vocab_size <= 2**16 else 4
    text = run.tokens * assumptions.text_bytes_per_token
    core_seconds = run.tokens / assumptions.tokens_per_core_second
    cores = assumed(assumptions.cores, "", setting("cores"))
    return {
        "token files": computed(run.tokens * width, "bytes", f"{width} bytes for each token"),
        "text": assumed(text, "bytes", setting("text_bytes_per_token")),
        "tokenising": computed(
            core_seconds / assumptions.cores,
            "s",
            f"on {assumptions.cores} cores ({setting('cores')})",
            cores,
        ),
    }


def _utilisation(
    utilisation: float | str | None, kind: Accelerator, train: TrainConfig
) -> Utilisation:
    name = kind.utilisation if utilisation is None else utilisation
    if name is None:
        why = f"no published runs of {kind.name} are known here; {setting('utilisation')}"
        return Utilisation(
            name="assumed",
            convention="parameters",
            figure=assumed(ANY_UTILISATION, "%", why),
            includes_interruptions=False,
        )
    if isinstance(name, float | int):
        check_utilisation(name)
        return Utilisation(
            name="given",
            convention="parameters",
            figure=assumed(name, "%", f"{setting('utilisation')}, of 6·N FLOP for each token"),
            includes_interruptions=False,
        )
    family = published_family(name)
    why = f"{name}: {family.source}"
    # On another kind of accelerator, or in fp32, what was measured is only a guess.
    guessed = family.kind != kind.name or train.precision == "fp32"
    return Utilisation(
        name=name,
        convention=family.convention,
        figure=(assumed if guessed else measured)(family.utilisation, "%", why),
        includes_interruptions=family.includes_interruptions,
    )


def _settings(what: Recipe | ModelConfig) -> tuple[ModelConfig, TrainConfig, int, int]:
    """Model, training, length and tokens of a batch."""
    if isinstance(what, ModelConfig):
        # The round numbers of GPT-3's table 2.1, half a million and 4 million.
        batch = 2**22 if inventory(what).total > 2e9 else 2**19
        return what, WITHOUT_RECIPE, what.max_length, batch
    if what.model is None:
        raise ClearheadError(f"recipe {what.name!r} has no [model]; a plan needs one")
    batches, batch = what.batches, what.batches.batch_tokens
    if what.data.task in ("language-model", "masked-lm"):
        batch = batches.batch_size * batches.length
    # The prepared data decide the size of the vocabulary. The recipe says what it asks for, unless
    # its tokens are characters, or it brings a tokenizer.
    model = replace(what.model, vocab_size=what.data.vocab_size or VOCABULARY)
    return model, what.train, min(model.max_length, batches.length), batch


def _trains(train: TrainConfig, layout: RankLayout) -> bool:
    """Tell whether these settings can have the layout: adafactor, for one, works on whole
    matrices."""
    try:
        replace(train, **layout.train)
    except ConfigError:
        return False
    return True


def _no_layout(model: ModelConfig, gpus: int, rows: int, length: int) -> ClearheadError:
    at_least = -(-rows // gpus) * gpus
    return ConfigError(
        "batch_tokens",
        rows * length,
        f"are {rows} sequences of {length} tokens, which {gpus} accelerators cannot share evenly "
        f"(tensor parallel over a node and {model.kv_heads} heads of keys included)",
        f"try {setting('batch_tokens', at_least * length)}",
    )
