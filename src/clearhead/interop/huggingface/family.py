"""A family of models in Hugging Face's terms: what of ours it can hold, how its `config.json` says
it, and which of its tensors hold which of ours."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, FolderError
from clearhead.interop.huggingface.rules import Read, Rule, Spelling
from clearhead.interop.model_folder import TokenIds, checked_fields, token_ids


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HARMLESS = words(
    """_name_or_path _num_labels architectures attn_implementation chunk_size_feed_forward
    finetuning_task gradient_checkpointing id2label keys_to_ignore_at_inference label2id
    max_length min_length model_type name_or_path num_beams num_labels num_return_sequences
    output_attentions output_hidden_states output_past problem_type return_dict
    return_dict_in_generate task_specific_params tokenizer_class torch_dtype dtype torchscript
    transformers_version use_bfloat16 use_cache use_return_dict length_penalty no_repeat_ngram_size
    do_sample early_stopping bad_words_ids forced_bos_token_id forced_eos_token_id"""
)
"""Keys of a `config.json` that change nothing in what the weights compute. Settings of decoding
are among them: they stay with whoever decodes."""


@dataclass(frozen=True)
class Need:
    """An option that the family can only hold with certain values; an import gives the first."""

    option: str
    values: tuple[Any, ...] | Callable[[ModelConfig], tuple[Any, ...]]
    written: str = ""
    """Where the values depend on other options: the condition, as code would have it."""

    def accepted(self, config: ModelConfig) -> tuple[Any, ...]:
        return self.values(config) if callable(self.values) else self.values

    def holds(self, config: ModelConfig) -> bool:
        return getattr(config, self.option) in self.accepted(config)

    def remedy(self, config: ModelConfig) -> str:
        accepted = self.accepted(config)
        said = " or ".join(f"{self.option}={value!r}" for value in accepted)
        return said or f"{self.option}: {self.described()}"

    def described(self) -> str:
        """The accepted values, for all configurations."""
        return self.written if callable(self.values) else ", ".join(map(repr, self.values))


@dataclass(frozen=True)
class Setting:
    """One of our options, and the keys of their `config.json` that hold it."""

    ours: str
    theirs: tuple[str, ...]
    default: Any
    """What their code takes where the key is left out."""
    words: Mapping[Any, str] | None = None
    """Our word → theirs, where they differ."""
    spellings: Mapping[str, str] = field(default_factory=dict)
    """Further words of theirs → our word."""

    def write(self, config: ModelConfig) -> dict[str, Any]:
        value = getattr(config, self.ours)
        return dict.fromkeys(self.theirs, self.words[value] if self.words else value)

    def read(self, keys: "Keys") -> Any:
        values = [keys.take(key, self.default) for key in self.theirs]
        if any(value != values[0] for value in values):
            said = ", ".join(f"{key}={value!r}" for key, value in zip(self.theirs, values))
            raise FolderError(
                f"config.json: {said} are one option here, {self.ours}; make them equal"
            )
        if self.words is None:
            return values[0]
        ours = {word: value for value, word in self.words.items()} | dict(self.spellings)
        if not isinstance(values[0], str) or values[0] not in ours:
            known = ", ".join(map(repr, ours))
            raise FolderError(
                f"config.json: {self.theirs[0]}={values[0]!r} has no home here; known: {known}"
            )
        return ours[values[0]]


class Keys:
    """A stranger's `config.json`: what is not asked for by name is refused."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._left = dict(content)

    def take(self, key: str, default: Any) -> Any:
        return self._left.pop(key, default)

    def refuse_the_rest(self, model_type: str, harmless: frozenset[str]) -> None:
        for key in sorted(self._left.keys() - harmless - HARMLESS):
            raise FolderError(
                f"config.json: {key!r} is not a key that clearhead knows of {model_type!r}; "
                "if it changes nothing in what the model computes, take it out"
            )


@dataclass(frozen=True, kw_only=True)
class Family:
    name: str
    model_type: str
    architecture: str
    needs: tuple[Need, ...]
    settings: tuple[Setting, ...]
    ids: Mapping[str, int | None]
    """Keys of special tokens, with what their code takes where one is left out."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Keys that must hold these values."""
    also: Mapping[str, Any] = field(default_factory=dict)
    """Keys that are written for the sake of other software; an import takes any value."""
    harmless: frozenset[str] = frozenset()
    """Keys of this family that change nothing in what the weights compute."""
    form: Callable[[ModelConfig], dict[str, Any]]
    """The options to rewrite (see `equivalent`) before the rules apply."""
    rules: Callable[[ModelConfig], Iterable[Rule]]
    spelling: Spelling
    write_more: Callable[[ModelConfig], dict[str, Any]] = lambda _: {}
    """What no table of settings can say; and the way back."""
    read_more: Callable[[Keys, dict[str, Any]], dict[str, Any]] = lambda *_: {}
    settle: Callable[[ModelConfig, Read], ModelConfig] = lambda config, _: config
    """What only the weights can say."""

    def unmet(self, config: ModelConfig) -> list[Need]:
        return [need for need in self.needs if not need.holds(config)]

    def formed(self, config: ModelConfig) -> ModelConfig:
        return replace(config, **self.form(config))

    def write_config(self, form: ModelConfig, ids: TokenIds, dtype: str) -> dict[str, Any]:
        """Their `config.json`."""
        content = {"architectures": [self.architecture], "model_type": self.model_type}
        for setting in self.settings:
            content |= setting.write(form)
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
        """Ours, from a `config.json` that nobody has looked at."""
        keys = Keys(content)
        options = {need.option: need.values[0] for need in self.needs if not callable(need.values)}
        options |= {setting.ours: setting.read(keys) for setting in self.settings}
        tokens = {key: _one_id(key, keys.take(key, value)) for key, value in self.ids.items()}
        options["pad_id"] = tokens.pop("pad_token_id")
        options |= self.read_more(keys, options)
        for key, value in self.fixed.items():
            if (given := keys.take(key, value)) != value:
                rule = f"config.json: {key}={given!r} has no home here"
                raise FolderError(f"{rule}; a {self.name} must have {key}={value!r}")
        keys.refuse_the_rest(self.model_type, self.harmless | self.also.keys())
        config = self.formed(ModelConfig(**checked_fields(ModelConfig, options)))
        for need in self.unmet(config):
            value = getattr(config, need.option)
            raise ConfigError(need.option, value, f"is no {self.name}", need.remedy(config))
        ids = {key.removesuffix("_token_id"): value for key, value in tokens.items()}
        ids.setdefault("decoder_start", None)
        return config, token_ids(ids, config)


def _one_id(key: str, value: Any) -> Any:
    """A list of ids that all end a text is one id here."""
    if isinstance(value, list):
        if len(value) != 1:
            raise FolderError(f"config.json: {key}={value!r}; keep the one id that is meant")
        return value[0]
    return value
