"""Exports a model folder to CTranslate2, with a parity certificate that compares the results with
clearhead's."""

from pathlib import Path
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ClearheadError, ConfigError
from clearhead.interop.certificate import Certificate
from clearhead.interop.ctranslate2.certificate import Names, certify, unchecked
from clearhead.interop.ctranslate2.specification import specification
from clearhead.interop.folders import has_file, whole_or_absent
from clearhead.interop.model_folder import (
    Description,
    TokenIds,
    load_model,
    read_description,
    refuse_own_parts,
)
from clearhead.interop.readme import write_readme
from clearhead.interop.tokenizer_file import (
    SOURCE,
    TARGET,
    TOKENIZER,
    copy_tokenizer,
    open_tokenizer,
)
from clearhead.models import Classifier, MaskedLM


def refuse_without_ctranslate2() -> None:
    """Raises if the library is missing."""
    try:
        import ctranslate2  # noqa: F401
    except ImportError:
        raise ClearheadError(
            "a CTranslate2 folder is written and read by ctranslate2, which is not installed; "
            "install it with: pip install 'clearhead[serve]'"
        ) from None


def export_ctranslate2(model_folder: Path, out: Path, *, check: bool = True) -> Certificate:
    """Write a folder that `ctranslate2.Translator` opens, or `Generator` for a decoder. A model
    that CTranslate2 does not support is refused before anything is written; if the folder computes
    something other than the model does, the folder is removed.

    Weights are written as fp32. Whoever opens the folder may choose a smaller format
    (`compute_type="int8"`).
    """
    description = read_description(model_folder)
    refuse_own_parts(model_folder, description, "CTranslate2")
    _refuse(description)
    refuse_without_ctranslate2()
    with whole_or_absent(out) as unfinished:
        names = names_of_tokens(model_folder, description)
        spec = _filled(model_folder, description, names)
        spec.save(str(unfinished))
        copy_tokenizer(model_folder, unfinished, description.model)
        architecture = spec.name
        del spec
        if check:
            certificate = certify(model_folder, unfinished, description, names, architecture)
        else:
            certificate = unchecked(architecture, "the check was left out, as asked")
        certificate.keep(unfinished)
        write_readme(unfinished, "ctranslate2", description, certificate)
    return certificate


def _refuse(description: Description) -> None:
    config, ids = description.model, description.ids
    if config.family == "encoder":
        rule = "is not supported by CTranslate2, whose encoders have no output layer"
        raise ConfigError("family", config.family, rule, """export it with to='huggingface'""")
    if not config.residual:
        rule = "is not supported by CTranslate2, whose layers are residual"
        raise ConfigError("residual", False, rule, "use residual=True")
    if config.positions == "alibi" and config.family == "encoder-decoder":
        rule = "is not supported by CTranslate2, whose encoders have no such bias"
        raise ConfigError("positions", "alibi", rule, "use any other positions")
    needed = ("eos", "decoder_start") if config.family == "encoder-decoder" else ("eos",)
    for role in needed:
        if getattr(ids, role) is None:
            rule = "must be a token: CTranslate2 begins and ends texts by itself"
            raise ConfigError(f"tokens.{role}", None, rule, "name one in the folder's config.json")


def names_of_tokens(model_folder: Path, description: Description) -> Names:
    """Return the tokenizer's names of the tokens, or their numbers."""
    config, eos = description.model, description.ids.eos

    def of_side(side: str, size: int) -> list[str]:
        name = side if has_file(model_folder, side) else TOKENIZER
        if not has_file(model_folder, name):
            return [str(index) for index in range(size)]
        tokenizer = open_tokenizer(model_folder, name)
        names = [tokenizer.id_to_token(index) for index in range(size)]
        return [f"<unused {n}>" if token is None else token for n, token in enumerate(names)]

    source = of_side(SOURCE, config.vocab_size)
    target = of_side(TARGET, config.output_vocab_size)
    assert eos is not None
    if source[eos : eos + 1] != target[eos : eos + 1]:
        rule = "must have the same name on both sides: CTranslate2 ends sources and targets with it"
        raise ConfigError("tokens.eos", eos, rule, "rename it in one of the tokenizers")
    return Names(source, target)


def _filled(model_folder: Path, description: Description, names: Names) -> Any:
    model = load_model(model_folder)
    assert not isinstance(model, MaskedLM | Classifier)
    config, ids = description.model, description.ids
    spec = specification(model)
    if config.family == "encoder-decoder":
        assert ids.decoder_start is not None
        spec.register_source_vocabulary(names.source)
        spec.register_target_vocabulary(names.target)
        spec.config.decoder_start_token = names.target[ids.decoder_start]
        spec.config.add_source_eos = True  # clearhead's sources end so too
    else:
        spec.register_vocabulary(names.target)
    _name_special_tokens(spec.config, names.target, ids, config)
    spec.validate()
    spec.optimize(quantization="float32")
    return spec


def _name_special_tokens(
    settings: Any, names: list[str], ids: TokenIds, config: ModelConfig
) -> None:
    assert ids.eos is not None
    settings.eos_token = names[ids.eos]
    settings.bos_token = names[ids.eos if ids.bos is None else ids.bos]
    # The name of a token that stands for unknown words; clearhead's tokenizers give none.
    settings.unk_token = names[0 if config.pad_id is None else config.pad_id]
