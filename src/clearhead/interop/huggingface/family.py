"""Describes a family of Hugging Face models: which options it supports, how its `config.json` names
them, and which of its tensors correspond to which of clearhead's."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, FolderError
from clearhead.interop.huggingface.rules import Read, Rule, Spelling
from clearhead.interop.model_folder import TokenIds, checked_fields, token_ids


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


HARMLESS = words(
    """_name_or_path _num_labels architectures attn_implementation chunk_size_feed_forward
    finetuning_task gradient_checkpointing id2label keys_to_ignore_at_inference label2id
    max_length min_length model_type name_or_path num_beams num_labels num_return_sequences
    output_attentions output_hidden_states output_past problem_type return_dict
    return_dict_in_generate task_specific_params tokenizer_class torch_dtype dtype torchscript
    transformers_version use_bfloat16 use_cache use_return_dict length_penalty no_repeat_ngram_size
    do_sample early_stopping bad_words_ids forced_bos_token_id forced_eos_token_id temperature top_k
    top_p typical_p repetition_penalty diversity_penalty num_beam_groups output_scores prefix
    encoder_no_repeat_ngram_size exponential_decay_length_penalty remove_invalid_values
    suppress_tokens begin_suppress_tokens sep_token_id tf_legacy_loss is_llama_config
    _attn_implementation_autoset transformers.js_config"""
)
"""Keys of a `config.json` that do not change what the weights compute. Settings of decoding are
among them, because the caller decides about decoding."""


HARMLESS_AS: Mapping[str, Any] = {
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
    "is_decoder": False,
    "pruned_heads": {},
    "rope_interleaved": False,
    "tie_encoder_decoder": False,
}
"""Keys that do not change the computation if they have this value."""


@dataclass(frozen=True)
class Need:
    """An option that the family supports only with certain values; an import sets the first of
    these values."""

    option: str
    values: tuple[Any, ...] | Callable[[ModelConfig], tuple[Any, ...]]
    written: str = ""
    """The condition as Python code, if the values depend on other options."""

    def accepted(self, config: ModelConfig) -> tuple[Any, ...]:
        """Return the accepted values, given the rest of the configuration."""
        return self.values(config) if callable(self.values) else self.values

    def holds(self, config: ModelConfig) -> bool:
        """Tell whether the configuration has an accepted value."""
        return getattr(config, self.option) in self.accepted(config)

    def remedy(self, config: ModelConfig) -> str:
        """Say what to change, for an error message."""
        accepted = self.accepted(config)
        options = " or ".join(f"{self.option}={value!r}" for value in accepted)
        return options or f"{self.option}: {self.described()}"

    def described(self) -> str:
        """Describe the accepted values, for all configurations."""
        return self.written if callable(self.values) else ", ".join(map(repr, self.values))


@dataclass(frozen=True)
class Setting:
    """One option of clearhead, and the keys of the Hugging Face `config.json` that hold it."""

    ours: str
    theirs: tuple[str, ...]
    default: Any
    """The value that transformers uses if the key is left out."""
    words: Mapping[Any, str] | None = None
    """The word of transformers for each word of clearhead, if the words differ."""
    spellings: Mapping[str, str] = field(default_factory=dict)
    """Further words of transformers, with clearhead's word for each."""

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return the keys and values for a `config.json`."""
        value = getattr(config, self.ours)
        return dict.fromkeys(self.theirs, self.words[value] if self.words else value)

    def read(self, keys: "Keys") -> Any:
        """Return the value of the option in a `config.json`. Raises if it is not supported."""
        values = [keys.take(key, self.default) for key in self.theirs]
        if any(value != values[0] for value in values):
            settings = ", ".join(f"{key}={value!r}" for key, value in zip(self.theirs, values))
            remedy = "make them equal"  # dropout shapes no weights
            if not self.ours.startswith("p_"):
                remedy = "import a model in which they are equal"
            raise FolderError(f"config.json: {settings} are one option here, {self.ours}; {remedy}")
        if self.words is None:
            return values[0]
        ours = {word: value for value, word in self.words.items()} | dict(self.spellings)
        if not isinstance(values[0], str) or values[0] not in ours:
            choices = ", ".join(map(repr, ours))
            raise FolderError(
                f"config.json: {self.theirs[0]}={values[0]!r} is not supported; known: {choices}"
            )
        return ours[values[0]]


class Keys:
    """The keys of an untrusted `config.json`. A key that no rule takes is refused."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._left = dict(content)

    def take(self, key: str, default: Any) -> Any:
        """Return the value of a key, which then counts as read."""
        return self._left.pop(key, default)

    def refuse_the_rest(self, model_type: str, harmless: frozenset[str]) -> None:
        """Raises if a key is left that no rule has taken and that may change the computation."""
        left = {k for k, v in self._left.items() if k not in HARMLESS_AS or v != HARMLESS_AS[k]}
        if unknown := sorted(left - harmless - HARMLESS):
            what = "is not a key" if len(unknown) == 1 else "are not keys"
            raise FolderError(
                f"config.json: {', '.join(map(repr, unknown))} {what} that clearhead knows of "
                f"{model_type!r}; remove keys that do not change what the model computes"
            )


@dataclass(frozen=True, kw_only=True)
class HuggingFaceFamily:
    """One Hugging Face architecture, as data: needs, settings and tensor rules."""

    name: str
    model_type: str
    architecture: str
    needs: tuple[Need, ...]
    settings: tuple[Setting, ...]
    ids: Mapping[str, int | None]
    """Keys of special tokens, with the value that transformers uses if a key is left out."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Keys that must hold these values."""
    also: Mapping[str, Any] = field(default_factory=dict)
    """Keys that are written for other software; an import accepts any value."""
    harmless: frozenset[str] = frozenset()
    """Keys of this family that change nothing in what the weights compute."""
    form: Callable[[ModelConfig], dict[str, Any]]
    """The options to rewrite (see `equivalent`) before the rules apply."""
    rules: Callable[[ModelConfig], Iterable[Rule]]
    spelling: Spelling
    write_more: Callable[[ModelConfig], dict[str, Any]] = lambda _: {}
    """What the settings cannot express, in both directions."""
    read_more: Callable[[Keys, dict[str, Any]], dict[str, Any]] = lambda *_: {}
    pads_have_positions: bool = True
    """True if a padding token that counts as real, such as the first token of the decoder, has a
    position."""
    settle: Callable[[ModelConfig, Read], ModelConfig] = lambda config, _: config
    """Determines what only the weights can tell."""

    def unmet(self, config: ModelConfig) -> list[Need]:
        """Return the needs that the configuration does not meet."""
        return [need for need in self.needs if not need.holds(config)]

    def formed(self, config: ModelConfig) -> ModelConfig:
        """Return the configuration after the rewriting that the family needs."""
        return replace(config, **self.form(config))

    def write_config(self, form: ModelConfig, ids: TokenIds, dtype: str) -> dict[str, Any]:
        """Return the content of the Hugging Face `config.json`."""
        content = {"architectures": [self.architecture], "model_type": self.model_type}
        for setting in self.settings:
            content |= setting.write(form)
        self._check_start(ids, form.pad_id)
        ours = {**asdict(ids), "pad": form.pad_id}
        tokens = {key: ours[key.removesuffix("_token_id")] for key in self.ids}
        return {
            **content,
            **self.write_more(form),
            **self.fixed,
            **self.also,
            **tokens,
            "dtype": dtype,
        }

    def read_config(self, content: Mapping[str, Any]) -> tuple[ModelConfig, TokenIds]:
        """Read the configuration of an untrusted `config.json`."""
        keys = Keys(content)
        options = {need.option: need.values[0] for need in self.needs if not callable(need.values)}
        options |= {setting.ours: setting.read(keys) for setting in self.settings}
        tokens = {key: _one_id(key, keys.take(key, value)) for key, value in self.ids.items()}
        options["pad_id"] = tokens.pop("pad_token_id")
        if options.get("family") == "decoder" and options["pad_id"] in tokens.values():
            options["pad_id"] = None  # here, padding is never a token that starts or ends a text
        options |= self.read_more(keys, options)
        for key, value in self.fixed.items():
            if (value_given := keys.take(key, value)) != value:
                rule = f"config.json: {key}={value_given!r} is not supported"
                raise FolderError(f"{rule}; a {self.name} must have {key}={value!r}")
        keys.refuse_the_rest(self.model_type, self.harmless | self.also.keys())
        config = self.formed(ModelConfig(**checked_fields(ModelConfig, options)))
        for need in self.unmet(config):
            value = getattr(config, need.option)
            raise ConfigError(
                need.option, value, f"is not supported by {self.name}", need.remedy(config)
            )
        for key, value in tokens.items():
            if type(value) is int and value >= config.output_vocab_size:
                if value != self.ids[key]:  # which nobody has chosen
                    raise FolderError(
                        f"config.json: {key}={value} is not a token of a vocabulary of "
                        f"{config.output_vocab_size}; write the id of one, or null"
                    )
                tokens[key] = None
        ids = {key.removesuffix("_token_id"): value for key, value in tokens.items()}
        ids.setdefault("decoder_start", None)
        token_roles = token_ids(ids, config)
        self._check_start(token_roles, config.pad_id)
        return config, token_roles

    def _check_start(self, ids: TokenIds, pad_id: int | None) -> None:
        start = ids.decoder_start
        if start is not None and start == pad_id and not self.pads_have_positions:
            rule = f"is the padding, to which transformers gives no position in {self.name}"
            raise ConfigError("tokens.decoder_start", start, rule, "start with another token")


def _one_id(key: str, value: Any) -> Any:
    """Return an id, or the only id of a list. Raises if the list has several ids."""
    if isinstance(value, list):
        if len(value) != 1:
            raise FolderError(f"config.json: {key}={value!r}; keep the one id that is meant")
        return value[0]
    return value
