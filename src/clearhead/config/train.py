"""The settings of training: how a model's weights are changed, measured and saved."""

from dataclasses import dataclass
from typing import Literal

from clearhead.config.checks import check_at_least, check_between, check_choices
from clearhead.errors import ConfigError

OptimizerKind = Literal["adamw", "adafactor", "muon"]
ScheduleKind = Literal["constant", "inverse-sqrt", "noam", "cosine", "wsd"]
Precision = Literal["fp32", "bf16", "fp16"]
Parallel = Literal["ddp", "fsdp"]
OnNan = Literal["stop", "skip"]
BestIs = Literal["lowest", "highest"]
Publish = Literal["last", "best", "average"]


MAX_MICRO_BATCHES = 2**20
"""The highest number of micro-batches in one step: with more, the first step would never end."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The settings of one run. A step is one global batch and one update of the weights, whatever
    number of ranks and micro-batches share it."""

    seed: int = 1
    """Decides the initial weights and dropout; batches.seed decides the order of the samples."""
    start_from: str | None = None
    """A model folder whose weights a new run starts with. Not set: random weights."""
    rehearse: str | None = None
    """The prepared folder of the text that start_from was trained on. Some steps read this text, so
    that the model does not forget it. Not set: no step does."""
    rehearse_share: float = 0.5
    """Share of the steps that read the text of rehearse."""
    steps: int = 1000
    """Number of updates of the weights."""
    epochs: int | None = None
    """A second limit: the number of passes over the training data. Not set: only steps limits the
    run."""
    max_minutes: float | None = None
    """A third limit: save a checkpoint and stop after this many minutes; the same command resumes.
    Not set: no limit."""
    micro_batches: int = 1
    """Number of pieces into which a step's batch is split. More pieces need less memory; the update
    is the same."""

    optimizer: OptimizerKind = "adamw"
    """How gradients change the weights: "adamw", "adafactor" (less memory), or "muon" for matrices
    and AdamW for the rest."""
    lr: float = 1e-3
    """Highest learning rate of the schedule; with "noam", the factor of its formula."""
    beta1: float = 0.9
    """AdamW's decay of the mean gradient (with muon: that of the embeddings and norms)."""
    beta2: float = 0.98
    """AdamW's decay of the mean squared gradient."""
    weight_decay: float = 0.01
    """Weight decay of matrices; biases and norms are not decayed."""
    clip_norm: float = 1.0
    """A gradient whose length (over all weights) exceeds this is scaled down to it. 0: never."""

    schedule: ScheduleKind = "inverse-sqrt"
    """Learning rate after the warm-up: "constant", "inverse-sqrt" (falls with 1/√step), "noam" (the
    paper's formula), "cosine" (falls to final_lr) or "wsd" (stays, then falls in decay_steps)."""
    warmup_steps: int = 100
    """Number of steps in which the learning rate rises from 0 to its highest value."""
    decay_steps: int = 0
    """wsd only: number of steps at the end in which the learning rate falls."""
    final_lr: float = 0.0
    """cosine and wsd: learning rate at the end, as a share of lr."""

    label_smoothing: float = 0.0
    """Share of the target probability that is spread over all tokens (section 5.4)."""
    z_loss: float = 0.0
    """Weight of the loss (log Z)² of each target, which keeps logits small. 1e-4 is usual; 0
    switches it off."""
    loss_chunk: int | None = None
    """Number of positions whose logits are in memory together. Not set: all of a micro-batch."""
    precision: Precision = "fp32"
    """Number format of matrix products: "fp32", "bf16", or "fp16" for devices without bf16, with a
    loss scale that follows the overflows. Weights are in fp32."""
    compile: bool = False
    """Compile each layer with torch.compile."""
    recompute: bool = False
    """Recompute each layer's activations in the backward pass, which takes less memory but more
    time."""
    ema: float | None = None
    """Decay of an exponential moving average of the weights; the average is then validated and
    published. At step n, the decay is (1 + n) / (10 + n) if that is smaller. Not set: no
    average."""

    validate_every: int = 0
    """Number of steps between validations; validation also runs after the last step. 0: no
    validation at all."""
    also_validate: tuple[str, ...] = ()
    """Prepared folders whose validation splits are measured as well. Each loss is shown as
    NAME_loss. It tells how much of its first text is remembered by a model that starts from another
    model."""
    translate_valid: int = 0
    """Pairs only: each validation translates this many sentences of the validation split
    (greedily), measures their BLEU and chrF++, and shows three of them. 0: none. Needs the extra
    eval."""
    sample_valid: int = 0
    """Each validation shows this many generated texts: continuations of pieces of the validation
    split, or, for pairs, translations (if translate_valid shows none). 0: none."""
    metric: str = "loss"
    """The measure that decides which step is best, and when patience ends training: loss,
    perplexity, accuracy (classification), BLEU or chrF++ (with translate_valid), or a name that
    your own validation returns."""
    best_is: BestIs = "lowest"
    """Which value of the metric is best: the "lowest" or the "highest". Accuracy, BLEU and chrF++
    need "highest"."""
    patience: int | None = None
    """Stop after this many validations without a new best. Not set: never."""
    publish: Publish = "last"
    """Which weights are written to the model folder: those of the "last" step, those of the "best"
    validation, or the "average" of the checkpoints that are kept (but the last weights if
    validation finds them better)."""

    log_every: int = 50
    """Number of steps between lines of log.txt; metrics.jsonl has a line for every step."""
    save_every: int = 100
    """Number of steps between checkpoints; the last step always has a checkpoint."""
    keep: int = 2
    """Number of newest checkpoints that are kept; the best one is kept as well."""
    async_save: bool = False
    """Write checkpoints while training continues, which needs memory for a copy of the state."""
    on_nan: OnNan = "stop"
    """What happens if a step's loss or gradient is not finite: "stop" ends training, "skip" leaves
    out the step. In both cases, no weight changes."""
    max_skips: int = 10
    """Number of steps in a row that on_nan "skip" leaves out before training stops."""
    trackers: tuple[str, ...] = ()
    """Trackers that record the run: "tensorboard", "wandb", or any other that accelerate
    supports."""

    workers: int = 0
    """Number of processes that read batches ahead. 0: the training process reads them itself."""
    parallel: Parallel = "ddp"
    """Under torchrun: every process holds the whole model ("ddp") or a shard of it ("fsdp")."""
    replicas: int = 1
    """fsdp only: number of groups of processes, each of which holds the whole model (HSDP)."""
    tensor_parallel: int = 1
    """fsdp only: number of neighbouring processes that compute each matrix product together; at
    most the number in one machine, whose links are fast. This number must divide the number of
    heads, d_ff and the size of the vocabulary."""
    timeout_minutes: float = 10.0
    """How long a process waits for the others before it reports which one is missing."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("seed", "warmup_steps", "decay_steps", "validate_every", "max_skips"):
            check_at_least(name, getattr(self, name), 0)
        for name in ("workers", "save_every", "translate_valid", "sample_valid"):
            check_at_least(name, getattr(self, name), 0)
        for name in ("steps", "log_every", "keep", "replicas", "tensor_parallel"):
            check_at_least(name, getattr(self, name), 1)
        check_between("micro_batches", self.micro_batches, 1, MAX_MICRO_BATCHES)
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
        if not 0 < self.rehearse_share < 1:
            rule = "must be above 0 and below 1"
            raise ConfigError("rehearse_share", self.rehearse_share, rule, "try 0.5")
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
        for name in ("replicas", "tensor_parallel"):
            if getattr(self, name) > 1 and self.parallel != "fsdp":
                rule = f"belongs to parallel='fsdp', but this is {self.parallel!r}"
                remedy = f"try {name}=1, or parallel='fsdp'"
                raise ConfigError(name, getattr(self, name), rule, remedy)
        if self.compile and self.tensor_parallel > 1:
            rule = f"is not supported with tensor_parallel={self.tensor_parallel}"
            raise ConfigError("compile", self.compile, rule, "try compile=False")
