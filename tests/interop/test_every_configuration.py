"""Over the whole option space: an export succeeds with its certificate, or is refused with a
reason. There is no third outcome."""

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.interop.certificate import PARITY
from clearhead.interop.equivalent import Equivalent
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.huggingface.families import FAMILIES, family_for
from clearhead.interop.huggingface.family import HuggingFaceFamily
from clearhead.interop.model_folder import save_model
from clearhead.models import PRESETS
from tests.drawing import configs, draws, random_model, random_tokens, run
from tests.interop.hugging import ids_for

# Each example writes and opens folders: a failing one is shown as it was drawn, not shrunk.
DRAWN = [Phase.generate]


def as_a(family: HuggingFaceFamily, config: ModelConfig) -> ModelConfig:
    """The configuration with only what the family needs changed."""
    needed = {n.option: n.accepted(config)[0] for n in family.needs if not callable(n.values)}
    config = replace(config, **{"n_segments": 0, **needed})
    depending = {n.option: n.accepted(config)[0] for n in family.unmet(config)}
    return replace(config, **depending)


@st.composite
def lossless(draw: st.DrawFn) -> tuple[HuggingFaceFamily, ModelConfig]:
    family = draw(st.sampled_from(FAMILIES))
    kind = family.needs[0].accepted(ModelConfig())[0]
    labels = any(need.option == "labels" and callable(need.values) for need in family.needs)
    positions = draw(st.sampled_from(positions_of(family)))
    config = draw(configs(family=kind, positions=positions, labels=labels))
    config = replace(config, n_heads=draw(st.sampled_from([1, 2, 3])), n_kv_heads=None)
    kept = {
        need.option: getattr(config, need.option)
        for need in family.needs
        if not callable(need.values) and need.holds(config)
    }
    return family, replace(as_a(family, config), **kept)


def positions_of(family: HuggingFaceFamily) -> tuple[str, ...]:
    return next(n.accepted(ModelConfig()) for n in family.needs if n.option == "positions")


def outcome(config: ModelConfig, folder: Path) -> ConfigError | None:
    """The refusal, if it was one; a certificate is checked here."""
    model = random_model(config, dtype=torch.float32)
    save_model(model, folder / "ours", ids=ids_for(config))
    try:
        certificate = export_model(folder / "ours", folder / "theirs")
    except ConfigError as error:
        assert [path.name for path in folder.iterdir()] == ["ours"]
        return error
    assert certificate.unchecked is None
    assert certificate.n_tokens > 50
    assert (folder / "theirs" / PARITY).exists()
    return None


@settings(max_examples=draws(10, nightly=40), phases=DRAWN)
@given(drawn=lossless())
def test_what_a_family_can_hold_is_exported_with_a_certificate(
    drawn: tuple[HuggingFaceFamily, ModelConfig],
):
    family, config = drawn
    assert family.unmet(config) == []
    with TemporaryDirectory() as folder:
        assert outcome(config, Path(folder)) is None


@settings(max_examples=draws(5, nightly=15), phases=DRAWN)
@given(config=configs())
def test_any_configuration_is_exported_or_refused(config: ModelConfig):
    with TemporaryDirectory() as folder:
        error = outcome(config, Path(folder))
    if error is not None:
        assert_names_the_option(error, config)


@settings(max_examples=draws(100, nightly=300))
@given(config=configs())
def test_a_refusal_names_the_option_its_value_and_what_would_be_lossless(config: ModelConfig):
    try:
        family = family_for(config)
    except ConfigError as error:
        assert_names_the_option(error, config)
        follow_the_advice(error, config)
    else:
        assert family.unmet(config) == []


def assert_names_the_option(error: ConfigError, config: ModelConfig) -> None:
    value = getattr(config, error.field)
    refusal = f"{error.field}={value!r} cannot be exported losslessly to Hugging Face"
    assert str(error).startswith(refusal)


def follow_the_advice(error: ConfigError, config: ModelConfig) -> None:
    """What the message says would be lossless, is."""
    advice = str(error).split("; ")[1]
    family = next(f for f in FAMILIES if advice.endswith(f" would be a {f.name}"))
    changes = {}
    for change in advice.removesuffix(f" would be a {family.name}").split(", "):
        option, value = re.fullmatch(r"(\w+)=(.*?)( or .*)?", change).groups()[:2]
        changes[option] = eval(value)
    assert family.unmet(replace(config, **changes)) == []


PUBLISHED = {"paper": "Marian", "gpt2": "GPT-2", "bert": "BERT", "llama": "Llama"}


@pytest.mark.parametrize("name", [name for name in PRESETS if name.split("-")[0] in PUBLISHED])
def test_every_preset_of_a_published_model_can_be_exported(name: str):
    assert family_for(PRESETS[name]).name == PUBLISHED[name.split("-")[0]]


@settings(max_examples=draws(15, nightly=60))
@given(drawn=lossless())
def test_an_equivalent_configuration_computes_the_same(
    drawn: tuple[HuggingFaceFamily, ModelConfig],
):
    """The rewriting alone, without any other software: ours against ours."""
    family, config = drawn
    model, form = random_model(config), family.formed(config)
    state = model.state_dict()
    equivalent = Equivalent(config, form, state.__getitem__)
    rewritten = random_model(form, seed=1)
    rewritten.load_state_dict({name: equivalent.read(name) for name in equivalent.shapes})
    tokens = random_tokens(config, 2, 9, target=True)
    source = random_tokens(config, 2, 7, seed=1) if config.family == "encoder-decoder" else None
    one, other = run(model, tokens, source), run(rewritten, tokens, source)
    torch.testing.assert_close(other[..., : one.shape[-1]], one, atol=1e-12, rtol=1e-10)
