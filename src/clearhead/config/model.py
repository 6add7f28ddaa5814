"""A model as inert data. Every option is a named choice, and `models/assemble.py` is the only place
that acts on one."""

from dataclasses import dataclass
from typing import Literal

from clearhead.config.checks import check_at_least, check_choices, nearest_divisor
from clearhead.errors import ConfigError

Family = Literal["encoder-decoder", "decoder", "encoder"]
Norm = Literal["layer", "rms"]
NormPlacement = Literal["pre", "post"]
FeedForwardKind = Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu"]
PositionKind = Literal["sinusoidal", "learned", "rotary", "alibi", "none"]
PositionPairs = Literal["halves", "interleaved"]
PositionSpacing = Literal["open", "closed"]
AttentionKind = Literal["fused", "explicit"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One model of any of the three families."""

    family: Family = "encoder-decoder"
    vocab_size: int = 37_000
    target_vocab_size: int | None = None
    """None: source and target share one vocabulary and one table. A number: separate tables."""
    pad_id: int | None = 0
    """The token that is not there. None: the vocabulary has no such token."""

    d_model: int = 512
    n_layers: int = 6
    """Layers of each tower."""
    n_decoder_layers: int | None = None
    """None: as many as `n_layers`. Only an encoder-decoder can have a different number."""
    n_heads: int = 8
    n_kv_heads: int | None = None
    """None: as many as `n_heads`. Fewer: grouped-query attention."""
    d_head: int | None = None
    """None: d_model / n_heads."""
    attention: AttentionKind = "fused"
    d_ff: int = 2048
    feed_forward: FeedForwardKind = "relu"

    norm: Norm = "layer"
    norm_placement: NormPlacement = "pre"
    """Pre-norm towers end in a norm of their own; post-norm towers need none."""
    norm_eps: float = 1e-5
    bias: bool = True
    """Biases in linear layers and layer norms."""
    residual: bool = True
    """False takes the residual connections away: an ablation."""

    positions: PositionKind = "sinusoidal"
    position_pairs: PositionPairs = "halves"
    """Which dimensions share a wavelength: i and i + d/2, or 2i and 2i + 1."""
    position_base: float = 10_000.0
    position_spacing: PositionSpacing = "open"
    """Sinusoid only. The i-th of d/2 wavelengths is 2π·base^(i/(d/2)), or, closed, with d/2 - 1
    in the exponent, so that the last one is 2π·base."""
    first_position: int = 0
    """The row of the position table at which a sequence starts."""
    max_length: int = 1024

    embedding_scale: bool = True
    """Multiply token embeddings by √d_model (section 3.4)."""
    embedding_norm: bool = False
    n_segments: int = 0
    """Rows of the segment table that an encoder adds to its tokens; 0: no table."""
    tie_output: bool = True
    """The output projection is the (target) token table."""
    output_bias: bool = False

    p_dropout: float = 0.1
    p_attention_dropout: float = 0.0
    init_std: float = 0.02

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("vocab_size", "d_model", "n_layers", "n_heads", "d_ff", "max_length"):
            check_at_least(name, getattr(self, name), 1)
        for name in ("target_vocab_size", "n_decoder_layers", "n_kv_heads", "d_head"):
            if getattr(self, name) is not None:
                check_at_least(name, getattr(self, name), 1)
        for name in ("first_position", "n_segments"):
            check_at_least(name, getattr(self, name), 0)
        if self.pad_id is not None:
            check_at_least("pad_id", self.pad_id, 0)
        for name in ("p_dropout", "p_attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                rule, remedy = "must be at least 0 and below 1", f"try {name}=0.1"
                raise ConfigError(name, getattr(self, name), rule, remedy)
        for name in ("norm_eps", "position_base", "init_std"):
            if not getattr(self, name) > 0:
                default = type(self).__dataclass_fields__[name].default
                raise ConfigError(name, getattr(self, name), "must be above 0", f"try {default}")
        self._check_widths()
        self._check_family()

    def _check_widths(self) -> None:
        if self.d_head is None and self.d_model % self.n_heads:
            raise ConfigError(
                "n_heads",
                self.n_heads,
                f"must divide d_model={self.d_model}",
                f"try n_heads={nearest_divisor(self.d_model, self.n_heads)}, or set d_head",
            )
        if self.n_heads % self.kv_heads:
            raise ConfigError(
                "n_kv_heads",
                self.n_kv_heads,
                f"must divide n_heads={self.n_heads}",
                f"try n_kv_heads={nearest_divisor(self.n_heads, self.kv_heads)}",
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            rule = "must be even with positions='sinusoidal' (sines and cosines come in pairs)"
            raise ConfigError("d_model", self.d_model, rule, f"try d_model={self.d_model + 1}")
        if self.positions == "rotary" and self.head_width % 2:
            rule = "must be even with positions='rotary' (dimensions turn in pairs)"
            raise ConfigError("d_head", self.head_width, rule, f"try d_head={self.head_width + 1}")
        if (
            self.positions == "sinusoidal"
            and self.position_spacing == "closed"
            and self.d_model < 4
        ):
            rule = "must be at least 4 with position_spacing='closed' (it divides by d_model/2 - 1)"
            raise ConfigError("d_model", self.d_model, rule, "try d_model=4")
        if self.first_position and self.positions not in ("sinusoidal", "learned"):
            rule = f"needs a table of positions, and positions={self.positions!r} has none"
            raise ConfigError("first_position", self.first_position, rule, "try first_position=0")
        for name in ("vocab_size", "target_vocab_size"):
            size = getattr(self, name)
            if None not in (size, self.pad_id) and self.pad_id >= size:
                rule = f"must be below {name}={size}"
                raise ConfigError("pad_id", self.pad_id, rule, "try pad_id=0")

    def _check_family(self) -> None:
        if self.family != "encoder-decoder":
            for name in ("target_vocab_size", "n_decoder_layers"):
                if getattr(self, name) is not None:
                    rule = f"belongs to family='encoder-decoder', and this is {self.family!r}"
                    raise ConfigError(name, getattr(self, name), rule, "leave it out")
        if self.n_segments and self.family != "encoder":
            rule = f"belongs to family='encoder', and this is {self.family!r}"
            raise ConfigError("n_segments", self.n_segments, rule, "leave it out")

    @property
    def kv_heads(self) -> int:
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def head_width(self) -> int:
        return self.d_model // self.n_heads if self.d_head is None else self.d_head

    @property
    def decoder_layers(self) -> int:
        return self.n_layers if self.n_decoder_layers is None else self.n_decoder_layers

    @property
    def output_vocab_size(self) -> int:
        return self.vocab_size if self.target_vocab_size is None else self.target_vocab_size
