"""Training as inert data: how a model's weights are changed, watched and kept."""

from dataclasses import dataclass
from typing import Literal

from clearhead.config.checks import check_at_least, check_choices
from clearhead.errors import ConfigError

OptimizerKind = Literal["adamw", "adafactor", "muon"]
ScheduleKind = Literal["constant", "inverse-sqrt", "noam", "cosine", "wsd"]
Precision = Literal["fp32", "bf16"]
Parallel = Literal["ddp", "fsdp"]
OnNan = Literal["stop", "skip"]
BestIs = Literal["lowest", "highest"]
Publish = Literal["last", "best", "average"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One run. A step is one global batch and one update, however many ranks and micro-batches
    share it."""

    seed: int = 1
    """Of the first weights and of dropout; the order of the samples has its own, batches.seed."""
    start_from: str | None = None
    """A model folder whose weights a new run begins with. None: random ones, from the seed."""
    steps: int = 1000
    epochs: int | None = None
    """A second limit: passes over the training data. None: as many as the steps take."""
    max_minutes: float | None = None
    """A third: checkpoint and stop after so long; the same command goes on from there."""
    micro_batches: int = 1
    """Pieces that a step's batch is worked through in. Memory shrinks; the update stays."""

    optimizer: OptimizerKind = "adamw"
    lr: float = 1e-3
    """The highest learning rate of the schedule; with noam, what its formula is multiplied by."""
    beta1: float = 0.9
    """AdamW's, also where Muon leaves it the embeddings and norms."""
    beta2: float = 0.98
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    """Longer gradients are shortened to this length; 0: never."""

    schedule: ScheduleKind = "inverse-sqrt"
    warmup_steps: int = 100
    decay_steps: int = 0
    """wsd only: the last steps, in which the rate falls."""
    final_lr: float = 0.0
    """cosine and wsd: where the rate ends, as a share of lr."""

    label_smoothing: float = 0.0
    z_loss: float = 0.0
    """Weight of (log Z)² for each target, which keeps logits from drifting. 1e-4 is usual."""
    loss_chunk: int | None = None
    """Positions whose logits are in memory together. None: all of a micro-batch."""
    precision: Precision = "fp32"
    compile: bool = False
    recompute: bool = False
    """Forget each layer's activations and compute them again in the backward pass."""
    ema: float | None = None
    """Keep a running average of the weights with this decay, and validate and publish it."""

    validate_every: int = 0
    """Steps between validations; 0: never."""
    metric: str = "loss"
    """What `best` and `patience` go by: loss, perplexity, or a name that a validation of one's own
    gives."""
    best_is: BestIs = "lowest"
    patience: int | None = None
    """Stop after so many validations without a new best. None: never."""
    publish: Publish = "last"
    """The weights that become the model folder: of the last step, of the best validation, or the
    average of the checkpoints that are kept."""

    log_every: int = 50
    """Steps between lines of the log; metrics.jsonl has every step."""
    save_every: int = 100
    """Steps between checkpoints; there is always one at the end."""
    keep: int = 2
    """Newest checkpoints that stay; the best stays beside them."""
    async_save: bool = False
    """Copy the state, and write it while training goes on."""
    on_nan: OnNan = "stop"
    """What to do when a step's loss or gradient is not finite. It never changes a weight."""
    max_skips: int = 10
    """Steps in a row that on_nan="skip" leaves out before it stops."""
    trackers: tuple[str, ...] = ()
    """tensorboard, wandb, …: whatever accelerate knows."""

    workers: int = 0
    """Processes that read batches ahead; 0: the training process reads."""
    parallel: Parallel = "ddp"
    """With torchrun: a copy of the model on each rank, or a share of it."""
    replicas: int = 1
    """fsdp only: groups of ranks that each hold the whole model (HSDP)."""
    timeout_minutes: float = 10.0
    """How long ranks wait for each other before they say whom they wait for."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("seed", "warmup_steps", "decay_steps", "validate_every", "max_skips"):
            check_at_least(name, getattr(self, name), 0)
        for name in ("workers", "save_every"):
            check_at_least(name, getattr(self, name), 0)
        for name in ("steps", "micro_batches", "log_every", "keep", "replicas"):
            check_at_least(name, getattr(self, name), 1)
        for name in ("epochs", "patience", "loss_chunk"):
            if getattr(self, name) is not None:
                check_at_least(name, getattr(self, name), 1)
        for name in ("lr", "max_minutes", "timeout_minutes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(name, value, "must be above 0", f"try {name}=1.0")
        for name in ("beta1", "beta2", "label_smoothing", "ema"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                rule = "must be at least 0 and below 1"
                raise ConfigError(name, value, rule, f"try {name}=0.9")
        for name in ("weight_decay", "z_loss", "final_lr", "clip_norm"):
            if not getattr(self, name) >= 0:
                raise ConfigError(name, getattr(self, name), "must be at least 0", "try 0.0")
        self._check_together()

    def _check_together(self) -> None:
        if self.warmup_steps + self.decay_steps > self.steps and self.schedule == "wsd":
            rule = f"and warmup_steps={self.warmup_steps} are more than steps={self.steps}"
            raise ConfigError("decay_steps", self.decay_steps, rule, "shorten one, or train longer")
        if self.schedule == "wsd" and not self.decay_steps:
            rule = "must be above 0 with schedule='wsd'"
            raise ConfigError("decay_steps", 0, rule, f"try decay_steps={max(1, self.steps // 5)}")
        if self.schedule in ("noam", "inverse-sqrt") and not self.warmup_steps:
            rule = f"must be above 0 with schedule={self.schedule!r}, whose peak it sets"
            raise ConfigError("warmup_steps", 0, rule, "try warmup_steps=100")
        needs_validation = self.publish == "best" or self.patience is not None
        if needs_validation and not self.validate_every:
            rule = "must be above 0 where publish='best' or patience is set"
            raise ConfigError("validate_every", 0, rule, "try validate_every=100")
        if self.optimizer == "adafactor" and self.parallel == "fsdp":
            rule = "cannot work on shares of a matrix, which parallel='fsdp' would give it"
            raise ConfigError("optimizer", self.optimizer, rule, "try parallel='ddp', or adamw")
        if self.replicas > 1 and self.parallel != "fsdp":
            rule = f"belongs to parallel='fsdp', and this is {self.parallel!r}"
            raise ConfigError("replicas", self.replicas, rule, "try replicas=1")
