"""Plans training on many accelerators, before you rent them."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from clearhead.api.keywords import takes
from clearhead.api.recipes import RecipeGiven, as_recipe
from clearhead.config import ModelConfig, Recipe, TrainConfig, recipe_names
from clearhead.config.tasks import PlanOptions
from clearhead.errors import InputError, nearest, type_of
from clearhead.models import PRESETS, preset
from clearhead.scale import Assumptions, ClusterPlan
from clearhead.scale import plan as cluster_plan
from clearhead.scale.accelerators import accelerator


@takes(PlanOptions)
def plan(
    what: RecipeGiven | ModelConfig,
    *,
    name: str | None = None,
    train: TrainConfig | None = None,
    gpus: int = PlanOptions.gpus,
    kind: str = PlanOptions.kind,
    tokens: float | None = PlanOptions.tokens,
    length: int | None = PlanOptions.length,
    batch_tokens: float | None = PlanOptions.batch_tokens,
    utilisation: float | str | None = PlanOptions.utilisation,
    assumptions: Assumptions | Mapping[str, float] | None = None,
) -> ClusterPlan:
    """Compute the memory, layout, time and cost of training on `gpus` accelerators of a `kind`,
    from arithmetic alone; `print` shows all of them. To estimate a run on this machine, use
    `training_plan`.

    `what` is a recipe, its name or path, a model's configuration, or the name of a preset. A recipe
    contains the number of `tokens`, the `length` of a sequence and the `batch_tokens` of a step;
    for a model alone, give `tokens`. `train` replaces the training settings of the recipe, or the
    settings that are assumed for a model alone (bf16, logits in chunks). If a model is given by its
    configuration, `name` is the name to show. `assumptions` replaces assumed values, such as
    {"price": 2.5}; see `clearhead.scale.Assumptions`.
    """
    for option, value, kind_wanted, remedy in (
        ("name", name, str | None, "give a text"),
        ("train", train, TrainConfig | None, "give a TrainConfig"),
    ):
        if not isinstance(value, kind_wanted):
            raise InputError(f"{option}={value!r:.60} is {type_of(value)}; {remedy}")
    options = PlanOptions(
        gpus=gpus,
        kind=kind,
        tokens=tokens,
        length=length,
        batch_tokens=batch_tokens,
        utilisation=utilisation,
    )
    accelerator(options.kind)  # an unknown kind is named before anything else
    return cluster_plan(
        _found(what),
        name=name or (what if isinstance(what, str) else "model"),
        train=train,
        gpus=options.gpus,
        kind=options.kind,
        tokens=options.tokens,
        length=options.length,
        batch_tokens=None if options.batch_tokens is None else int(options.batch_tokens),
        utilisation=options.utilisation,
        assumptions=_assumptions(assumptions),
    )


def _found(what: RecipeGiven | ModelConfig) -> Recipe | ModelConfig:
    if isinstance(what, ModelConfig):
        return what
    if not isinstance(what, str | Path | Recipe):
        raise InputError(
            f"what={what!r:.60} is {type_of(what)}; give a recipe, the path of a .toml "
            "file, a ModelConfig, or the name of a recipe or preset"
        )
    if isinstance(what, str) and not what.endswith(".toml") and what not in recipe_names():
        if what not in PRESETS:
            remedy = nearest(what, [*recipe_names(), *PRESETS])
            raise InputError(f"there is no recipe or preset {what!r}; {remedy}")
        return preset(what)
    return as_recipe(what)


def _assumptions(assumptions: Assumptions | Mapping[str, float] | None) -> Assumptions:
    if isinstance(assumptions, Assumptions):
        return assumptions
    if not isinstance(assumptions, Mapping | None):
        raise InputError(
            f"assumptions={assumptions!r:.60} is {type_of(assumptions)}; give a "
            "dictionary, such as {'price': 2.5}"
        )
    names = [field.name for field in fields(Assumptions)]
    for name, value in (assumptions or {}).items():
        if name not in names:
            raise InputError(f"assumptions has no {name!r}; {nearest(str(name), names)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{name}={value!r} is {type_of(value)}; give a number")
    values: dict[str, Any] = dict(assumptions or {})
    return Assumptions(**values)
