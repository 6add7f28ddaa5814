"""Decides what may differ between a run and the recipe with which it is resumed: one table, field
by field."""

from dataclasses import MISSING, asdict
from typing import Any, Literal

from clearhead.config import Recipe
from clearhead.errors import ClearheadError, setting

ChangeRule = Literal["refuse", "warn", "allow"]

# Every field of every section. Refuse: the steps so far would belong to another run. Warn: from
# here, the run continues with other settings. Allow: no step's numbers depend on the field.
RULES: dict[str, ChangeRule] = {
    "data": "allow",  # its effects are in the token files, whose fingerprint is compared
    "batches": "refuse",
    "model": "refuse",
    "model.p_dropout": "warn",
    "model.p_attention_dropout": "warn",
    "model.attention": "warn",
    "train.seed": "refuse",
    "train.start_from": "refuse",
    "train.rehearse": "refuse",
    "train.rehearse_share": "refuse",
    "train.steps": "warn",
    "train.epochs": "allow",
    "train.max_minutes": "allow",
    "train.micro_batches": "warn",
    "train.optimizer": "refuse",
    "train.lr": "warn",
    "train.beta1": "warn",
    "train.beta2": "warn",
    "train.weight_decay": "warn",
    "train.clip_norm": "warn",
    "train.schedule": "warn",
    "train.warmup_steps": "warn",
    "train.decay_steps": "warn",
    "train.final_lr": "warn",
    "train.label_smoothing": "warn",
    "train.z_loss": "warn",
    "train.loss_chunk": "warn",
    "train.precision": "warn",
    "train.compile": "warn",
    "train.recompute": "allow",
    "train.ema": "refuse",
    "train.validate_every": "warn",
    "train.also_validate": "allow",
    "train.translate_valid": "allow",
    "train.sample_valid": "allow",
    "train.metric": "refuse",
    "train.best_is": "refuse",
    "train.patience": "warn",
    "train.publish": "allow",
    "train.log_every": "allow",
    "train.save_every": "allow",
    "train.keep": "allow",
    "train.async_save": "allow",
    "train.on_nan": "warn",
    "train.max_skips": "warn",
    "train.trackers": "allow",
    "train.workers": "allow",
    "train.parallel": "warn",
    "train.replicas": "warn",
    "train.tensor_parallel": "warn",
    "train.timeout_minutes": "allow",
}


def rule_for(key: str) -> ChangeRule:
    """Return what happens if the value of this key differs on resuming."""
    return RULES[key] if key in RULES else RULES[key.split(".")[0]]


def recipe_facts(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as plain JSON, which is stored in checkpoints."""
    sections = ("data", "batches", "model", "train")
    return {section: asdict(getattr(recipe, section)) for section in sections}


def check_changes(before: dict[str, Any], recipe: Recipe) -> list[str]:
    """Return the changes to warn about. Raises if a change is not allowed."""
    now = recipe_facts(recipe)
    changes: dict[ChangeRule, list[str]] = {"refuse": [], "warn": [], "allow": []}
    for section, values in now.items():
        for name, value in values.items():
            # A field that is newer than the checkpoint had its default value then, if it has one.
            default = type(getattr(recipe, section)).__dataclass_fields__[name].default
            old = before[section].get(name, value if default is MISSING else default)
            old = tuple(old) if isinstance(old, list) else old
            if old != value:
                key = f"{section}.{name}"
                changes[rule_for(key)].append(f"{key} was {old!r}, is {value!r}")
    if changes["refuse"]:
        raise ClearheadError(
            f"this run cannot resume with another recipe: {'; '.join(changes['refuse'])}; "
            "restore the old values, or start a new run in another folder: "
            f"{setting('folder', ...)}"
        )
    return changes["warn"]


def changed_versions(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the libraries whose versions differ from those of the checkpoint."""
    return [
        f"{name} was {before.get(name)}, is {version}"
        for name, version in now.items()
        if before.get(name) != version
    ]
