"""The settings of a model. Every option is a named choice. Only `models/assemble.py` builds parts
from the options; the code that counts operations and the exporters read them as well."""

from dataclasses import dataclass
from typing import Literal

from clearhead.config.checks import (
    check_at_least,
    check_between,
    check_choices,
    check_labels,
    nearest_divisor,
)
from clearhead.errors import ConfigError

Family = Literal["encoder-decoder", "decoder", "encoder"]
Norm = Literal["layer", "rms"]
NormPlacement = Literal["pre", "post"]
FeedForwardKind = Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu"]
PositionKind = Literal["sinusoidal", "learned", "rotary", "alibi", "none"]
PositionPairs = Literal["halves", "interleaved"]
PositionSpacing = Literal["open", "closed"]
AttentionKind = Literal["fused", "explicit"]


MAX_SIZE = 2**28
"""The largest width, length or vocabulary: torch counts the bytes of a matrix of two such sizes in
64 bits."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One model of any of the three families."""

    family: Family = "encoder-decoder"
    """Which stacks the model has: "encoder-decoder" (translation), "decoder" (language model) or
    "encoder" (masked language model, classification)."""
    vocab_size: int = 37_000
    """Number of tokens in the vocabulary (in that of the source, if there are two)."""
    target_vocab_size: int | None = None
    """Number of tokens in the target vocabulary, which then has its own table. Not set: source and
    target share one vocabulary and one table."""
    pad_id: int | None = 0
    """Id of the padding token, which no position attends to. Not set: the vocabulary has none."""

    d_model: int = 512
    """Width of the vectors that flow through the layers."""
    n_layers: int = 6
    """Number of layers in each stack."""
    n_decoder_layers: int | None = None
    """Number of layers in the decoder of an encoder-decoder. Not set: n_layers."""
    n_heads: int = 8
    """Number of attention heads in each layer."""
    n_kv_heads: int | None = None
    """Number of heads of keys and values. If it is below n_heads, attention is grouped-query. Not
    set: n_heads."""
    d_head: int | None = None
    """Width of one head. Not set: d_model / n_heads."""
    attention: AttentionKind = "fused"
    """What computes attention: torch's kernel ("fused"), or the formula as the paper writes it
    ("explicit"). The results agree up to rounding."""
    d_ff: int = 2048
    """Inner width of the feed-forward network."""
    feed_forward: FeedForwardKind = "relu"
    """Activation of the feed-forward network: "relu" (the paper), "gelu", "gelu-tanh" (GPT-2),
    "silu", or "swiglu" and "geglu", which are gated and have a third matrix."""

    norm: Norm = "layer"
    """Kind of norm: "layer" subtracts the mean and divides by the standard deviation, "rms" only
    divides by the root mean square."""
    norm_placement: NormPlacement = "pre"
    """Where the norms are. "pre": x + f(norm(x)), with a norm at the end of each stack, which
    trains without a long warm-up; "post": norm(x + f(x)), as in the paper."""
    norm_eps: float = 1e-5
    """A small number that is added to the variance, so that a norm never divides by zero."""
    bias: bool = True
    """True if linear layers and layer norms have biases."""
    residual: bool = True
    """True if sublayers have residual connections; false removes them, as an ablation."""

    positions: PositionKind = "sinusoidal"
    """How the model knows the order of tokens: "sinusoidal" or "learned" vectors are added to the
    embeddings, "rotary" rotates queries and keys, "alibi" subtracts a distance from the scores,
    "none" does nothing."""
    position_pairs: PositionPairs = "halves"
    """Which dimensions share a wavelength (sinusoidal, rotary): "halves" pairs i with i + d/2,
    "interleaved" (the paper) pairs 2i with 2i + 1."""
    position_base: float = 10_000.0
    """The longest wavelength is 2π·base^((d - 2)/d), where d is d_model (sinusoidal) or d_head
    (rotary)."""
    position_spacing: PositionSpacing = "open"
    """Sinusoidal only. Wavelength i is 2π·base^(i/n): n is d_model/2 with "open", and d_model/2 - 1
    with "closed", so that the longest wavelength is exactly 2π·base."""
    first_position: int = 0
    """Number of the row of the position table that the first token gets (sinusoidal, learned)."""
    max_length: int = 1024
    """Length of the longest sequence, in tokens."""

    embedding_scale: bool = True
    """Multiply token embeddings by √d_model (section 3.4 of the paper)."""
    embedding_norm: bool = False
    """Apply a norm to the sum of the embeddings, as in BERT."""
    n_segments: int = 0
    """Encoders only: number of rows of a segment table, whose vectors are added to the tokens', as
    in BERT. 0: no table."""
    labels: tuple[str, ...] = ()
    """Encoders only: the labels of a classifier, whose head scores them from the vector of a text's
    first token, as in BERT. Empty: a masked language model."""
    tie_output: bool = True
    """The output projection uses the weights of the (target) token table."""
    output_bias: bool = False
    """A bias for each token of the vocabulary in the output projection."""

    p_dropout: float = 0.1
    """Dropout on embeddings and on the output of every sublayer."""
    p_attention_dropout: float = 0.0
    """Dropout on attention weights."""
    init_std: float = 0.02
    """Standard deviation of the initial weights."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("vocab_size", "d_model", "n_layers", "n_heads", "d_ff", "max_length"):
            check_between(name, getattr(self, name), 1, MAX_SIZE)
        for name in ("target_vocab_size", "n_decoder_layers", "n_kv_heads", "d_head"):
            if getattr(self, name) is not None:
                check_between(name, getattr(self, name), 1, MAX_SIZE)
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
            rule = "must be even with positions='rotary' (dimensions rotate in pairs)"
            raise ConfigError("d_head", self.head_width, rule, f"try d_head={self.head_width + 1}")
        if (
            self.positions == "sinusoidal"
            and self.position_spacing == "closed"
            and self.d_model < 4
        ):
            rule = "must be at least 4 with position_spacing='closed' (it divides by d_model/2 - 1)"
            raise ConfigError("d_model", self.d_model, rule, "try d_model=4")
        if self.first_position and self.positions not in ("sinusoidal", "learned"):
            rule = f"needs a table of positions, but positions={self.positions!r} has none"
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
                    rule = f"belongs to family='encoder-decoder', but this is {self.family!r}"
                    raise ConfigError(name, getattr(self, name), rule, "leave it out")
        if self.n_segments and self.family != "encoder":
            rule = f"belongs to family='encoder', but this is {self.family!r}"
            raise ConfigError("n_segments", self.n_segments, rule, "leave it out")
        object.__setattr__(self, "labels", tuple(self.labels))  # of JSON, a list
        if self.labels and self.family != "encoder":
            rule = f"belong to family='encoder', but this is {self.family!r}"
            raise ConfigError("labels", self.labels, rule, "leave them out")
        if self.labels:
            check_labels(self.labels)

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values, with the default resolved."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def head_width(self) -> int:
        """Width of one head, with the default resolved."""
        return self.d_model // self.n_heads if self.d_head is None else self.d_head

    @property
    def decoder_layers(self) -> int:
        """Layers of the decoder, with the default resolved."""
        return self.n_layers if self.n_decoder_layers is None else self.n_decoder_layers

    @property
    def output_vocab_size(self) -> int:
        """Tokens that the model can predict: the target vocabulary, if there is one."""
        return self.vocab_size if self.target_vocab_size is None else self.target_vocab_size
