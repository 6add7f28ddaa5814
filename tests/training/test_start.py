"""A run can begin with the weights of a model folder, if they mean the same in it."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from clearhead.config import Recipe, load_recipe, recipe_toml
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.mixing import MixedLoader, is_rehearsal
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job
from clearhead.errors import ClearheadError
from clearhead.interop.model_folder import TokenIds, save_model
from clearhead.models import build_model
from clearhead.training.beforehand import fit_model
from clearhead.training.distributed import Ranks, objective_of
from clearhead.training.run import Run, open_run
from clearhead.training.start import recipe_from
from tests.data.small_corpora import make_corpus
from tests.training.conftest import make_text
from tests.training.small import PAIRS, TEXT, digest, go, with_model, with_train


@pytest.fixture
def start(text: Corpus, tmp_path: Path) -> Path:
    """The folder of a model that no seed of these tests gives."""
    save_model(
        build_model(fit_model(TEXT, text), seed=99), tmp_path / "start", tokenizer=text.folder
    )
    return tmp_path / "start"


def opened(recipe: Recipe, corpus: Corpus, folder: Path) -> Run:
    return open_run(recipe, corpus, folder, Ranks(), lambda _: None)


def test_a_new_run_has_the_weights_of_the_folder(text: Corpus, start: Path, tmp_path: Path):
    recipe = with_train(TEXT, start_from=str(start), ema=0.9)
    wanted = digest(build_model(fit_model(TEXT, text), seed=99))
    run = opened(with_model(recipe, p_dropout=0.5), text, tmp_path / "run")
    assert digest(objective_of(run.objective).model) == wanted
    assert run.ema is not None
    for name, parameter in objective_of(run.objective).named_parameters():
        assert run.ema[name].equal(parameter)
    plain = opened(TEXT, text, tmp_path / "plain")
    assert digest(objective_of(plain.objective).model) != wanted


def test_a_run_that_goes_on_goes_on_from_its_checkpoint(text: Corpus, start: Path, tmp_path: Path):
    recipe = with_train(TEXT, start_from=str(start), steps=6)
    whole = go(recipe, text, tmp_path / "whole")
    assert f"starting from the weights of {start}" in whole.said
    go(with_train(recipe, steps=3), text, tmp_path / "pieces")
    shutil.rmtree(start)  # it is not needed any more
    pieces = go(recipe, text, tmp_path / "pieces")
    assert pieces.lines == whole.lines
    assert digest(pieces.run.objective) == digest(whole.run.objective)


def test_the_folder_stands_in_the_recipe_and_null_takes_it_away(start: Path, tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(recipe_toml(with_train(TEXT, start_from=str(start))), encoding="utf-8")
    assert load_recipe(str(path)).train.start_from == str(start)
    assert load_recipe(str(path), [("train.start_from", "null")]).train.start_from is None


def test_another_shape_is_refused_with_what_differs(text: Corpus, start: Path, tmp_path: Path):
    recipe = with_model(with_train(TEXT, start_from=str(start)), d_ff=30, n_layers=1)
    message = r"another shape: n_layers is 2 there and 1 here; d_ff is 24 there and 30 here; write"
    with pytest.raises(ClearheadError, match=message):
        opened(recipe, text, tmp_path / "run")


def test_another_tokenizer_is_refused_with_how_to_use_the_right_one(start: Path, tmp_path: Path):
    other = make_text(tmp_path / "other", n=31)
    recipe = with_train(TEXT, start_from=str(start))
    message = r"tokenizer\.json is not that of .*other words; .*data\.tokenizer_file='.*start/tok"
    with pytest.raises(ClearheadError, match=message):
        opened(recipe, other, tmp_path / "run")


def test_a_folder_that_is_not_there_is_named(text: Corpus, tmp_path: Path):
    recipe = with_train(replace(TEXT), start_from=str(tmp_path / "none"))
    with pytest.raises(
        ClearheadError, match=r"train\.start_from='.*none' is not a folder; name a finished run"
    ):
        opened(recipe, text, tmp_path / "run")


def test_a_run_stands_for_the_model_in_it(text: Corpus, start: Path, tmp_path: Path):
    (tmp_path / "some-run").mkdir()
    start.rename(tmp_path / "some-run" / "model")
    recipe = with_train(TEXT, start_from=str(tmp_path / "some-run"))
    run = opened(recipe, text, tmp_path / "run")
    wanted = digest(build_model(fit_model(TEXT, text), seed=99))
    assert digest(objective_of(run.objective).model) == wanted


@pytest.mark.parametrize(
    ("positions", "longer"),
    [("sinusoidal", True), ("rotary", True), ("alibi", True), ("learned", False)],
)
def test_positions_that_are_computed_can_go_on(
    text: Corpus, tmp_path: Path, positions: str, longer: bool
):
    short = with_model(TEXT, positions=positions)
    first = build_model(fit_model(short, text), seed=99)
    save_model(first, tmp_path / "start", tokenizer=text.folder)
    recipe = with_train(with_model(short, max_length=33), start_from=str(tmp_path / "start"))
    if not longer:
        with pytest.raises(ClearheadError, match="max_length is 20 there and 33 here"):
            opened(recipe, text, tmp_path / "run")
        return
    model = objective_of(opened(recipe, text, tmp_path / "run").objective).model
    assert model.config.max_length == 33
    weights = dict(model.named_parameters())
    assert all(weights[name].equal(value) for name, value in first.named_parameters())


def test_a_tokenizer_without_padding_hides_no_end_from_a_language_model(
    text: Corpus, tmp_path: Path
):
    """As an imported GPT-2 has it: one control token for everything."""
    save_model(
        build_model(replace(fit_model(TEXT, text), pad_id=None), seed=99),
        tmp_path / "gpt",
        tokenizer=text.folder,
    )
    data = replace(
        TEXT.data,
        tokenizer="file",
        tokenizer_file=str(text.folder / "tokenizer.json"),
        special_tokens=("<eos>", "<eos>", "<eos>"),
        vocab_size=None,
    )
    prepare(Job(config=data, root=text.folder.parent, folder=tmp_path / "prepared"))
    corpus = open_corpus(tmp_path / "prepared")
    recipe = replace(with_train(TEXT, start_from=str(tmp_path / "gpt"), steps=2), data=data)
    for layout in ("stream", "documents"):
        each = replace(recipe, batches=replace(recipe.batches, layout=layout))
        assert fit_model(each, corpus).pad_id is None
        assert go(each, corpus, tmp_path / layout).ending.finished


def test_a_recipe_from_a_run_takes_over_tokenizer_and_shape(
    text: Corpus, start: Path, tmp_path: Path
):
    (tmp_path / "first").mkdir()
    start.rename(tmp_path / "first" / "model")
    recipe = with_train(TEXT, lr=0.01)
    (tmp_path / "first" / "recipe.toml").write_text(recipe_toml(recipe), encoding="utf-8")
    template = with_model(with_train(TEXT, validate_every=1), d_model=32, d_ff=99, p_dropout=0.3)
    found = recipe_from(template, tmp_path / "first", text.folder)
    assert found.model is not None and found.model.d_model == 16 and found.model.d_ff == 24
    assert found.model.p_dropout == 0.3 and found.train.lr == 0.01
    assert found.data.tokenizer_file == str(tmp_path / "first" / "model" / "tokenizer.json")
    assert found.train.start_from == str(tmp_path / "first")
    assert found.train.also_validate == (str(text.folder),)
    assert found.train.rehearse == str(text.folder)
    assert found.train.rehearse_share == 0.3
    pairs = replace(template, model=replace(found.model, family="encoder-decoder"))
    with pytest.raises(ClearheadError, match="of family 'decoder', but this text needs 'encoder-d"):
        recipe_from(pairs, tmp_path / "first")
    (tmp_path / "first" / "model" / "tokenizer.json").unlink()
    with pytest.raises(ClearheadError, match=r"has no tokenizer\.json, .* name a model with one"):
        recipe_from(template, tmp_path / "first")


def test_a_recipe_from_elsewhere_names_the_tokens_of_its_tokenizer(text: Corpus, tmp_path: Path):
    """As an imported GPT-2 has it: one control token, and rows of the table that no token uses."""
    tokenizer = (text.folder / "tokenizer.json").read_text(encoding="utf-8")
    (tmp_path / "t").mkdir()
    named = tokenizer.replace("<eos>", "<|endoftext|>").replace("<pad>", "<a>")
    (tmp_path / "t" / "tokenizer.json").write_text(named, encoding="utf-8")
    wider = replace(fit_model(TEXT, text), pad_id=None, vocab_size=320)
    model, ids = build_model(wider), TokenIds(bos=None, eos=2)
    save_model(model, tmp_path / "gpt", tokenizer=tmp_path / "t", ids=ids)
    found = recipe_from(TEXT, tmp_path / "gpt")
    assert found.data.special_tokens == ("<|endoftext|>",) * 3
    # Names that a tokenizer has are not those of a model that has no padding.
    save_model(model, tmp_path / "ours", tokenizer=text.folder, ids=ids)
    assert recipe_from(TEXT, tmp_path / "ours").data.special_tokens == ("<eos>",) * 3
    prepare(Job(config=found.data, root=text.folder.parent, folder=tmp_path / "prepared"))
    run = opened(found, open_corpus(tmp_path / "prepared"), tmp_path / "run")
    table = objective_of(run.objective).model.tokens.weight
    assert len(table) < 320 and table.equal(model.tokens.weight[: len(table)])


def test_data_that_a_new_run_could_not_read_are_not_validated_on(
    text: Corpus, start: Path, tmp_path: Path
):
    special = (*TEXT.data.special_tokens, "<mask>")
    other_task = replace(TEXT, data=replace(TEXT.data, task="masked-lm", special_tokens=special))
    assert recipe_from(TEXT, start, text.folder).train.also_validate == (str(text.folder),)
    assert recipe_from(other_task, start, text.folder).train.also_validate == ()
    other = make_text(tmp_path / "other", n=9)
    assert recipe_from(TEXT, start, other.folder).train.also_validate == ()
    assert recipe_from(TEXT, start, other.folder).train.rehearse is None


def test_a_recipe_from_a_run_takes_over_the_highest_rate_of_its_schedule(
    text: Corpus, start: Path, tmp_path: Path
):
    (tmp_path / "first").mkdir()
    start.rename(tmp_path / "first" / "model")
    recipe = with_train(TEXT, schedule="noam", lr=1.0, warmup_steps=25)
    (tmp_path / "first" / "recipe.toml").write_text(recipe_toml(recipe), encoding="utf-8")
    found = recipe_from(TEXT, tmp_path / "first")
    assert found.train.lr == pytest.approx(16**-0.5 * 25**-0.5)


def test_a_recipe_from_a_run_takes_over_its_optimizer_with_its_rate(
    text: Corpus, start: Path, tmp_path: Path
):
    """A rate for Muon is too high for AdamW."""
    template = with_train(TEXT, optimizer="muon")
    assert recipe_from(template, start).train.optimizer == "adamw"  # the rate is AdamW's too
    (tmp_path / "first").mkdir()
    start.rename(tmp_path / "first" / "model")
    recipe = with_train(TEXT, optimizer="muon", lr=0.01)
    (tmp_path / "first" / "recipe.toml").write_text(recipe_toml(recipe), encoding="utf-8")
    found = recipe_from(TEXT, tmp_path / "first").train
    assert (found.optimizer, found.lr) == ("muon", 0.01)


def test_other_data_are_validated_on_as_well(text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=2, validate_every=2, also_validate=(str(text.folder),))
    lines = go(recipe, text, tmp_path / "run").lines
    (found,) = (line for line in lines if "valid" in line)
    assert found[f"{text.folder.name}_loss"] == pytest.approx(found["loss"])
    other = make_text(tmp_path / "other", n=9)
    with pytest.raises(ClearheadError, match="has no validation split with the tokenizer of this"):
        go(with_train(recipe, also_validate=(str(other.folder),)), text, tmp_path / "again")


def test_other_data_of_one_name_are_refused_with_both(text: Corpus, tmp_path: Path):
    copy = tmp_path / text.folder.name
    shutil.copytree(text.folder, copy)
    both = (str(text.folder), str(copy))
    recipe = with_train(TEXT, validate_every=2, also_validate=both)
    with pytest.raises(ClearheadError, match=f"'{copy}' ends in the same name as {both[0]}, and"):
        opened(recipe, text, tmp_path / "run")


def test_other_data_that_the_model_does_not_hold_are_refused_before_the_first_step(
    pairs: Corpus, tmp_path: Path
):
    for side in ("source", "target"):
        (tmp_path / f"{side}.txt").write_text("A dog runs on the grass. " * 40 + "\n", "utf-8")
    tokenizer = str(pairs.folder / "tokenizer.json")
    data = replace(PAIRS.data, tokenizer="file", tokenizer_file=tokenizer, vocab_size=None)
    other = make_corpus(tmp_path, data)
    longest = max(other.manifest.splits["valid"].longest.values())
    recipe = with_model(PAIRS, max_length=longest - 1)
    recipe = replace(recipe, batches=replace(recipe.batches, batch_tokens=2 * longest))
    recipe = with_train(recipe, validate_every=2, also_validate=(str(other.folder),))
    message = rf"max_length={longest - 1} must hold .*also_validate='.*has {longest} tokens; try"
    with pytest.raises(ClearheadError, match=message):
        opened(recipe, pairs, tmp_path / "run")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_rehearsals_are_evenly_spread_over_the_steps(share: float):
    steps = [is_rehearsal(step, share) for step in range(1000)]
    assert sum(steps) == round(1000 * share)
    for begin in range(0, 1000, 100):
        assert abs(sum(steps[begin : begin + 100]) - 100 * share) <= 1


def test_a_run_that_rehearses_reads_both_texts_and_resumes_exactly(text: Corpus, tmp_path: Path):
    first = corpus_of("The cat sat on the mat.\n" * 60, text, tmp_path)
    recipe = with_train(TEXT, steps=8, rehearse=str(first.folder), rehearse_share=0.25)
    whole = go(recipe, text, tmp_path / "whole")
    loader = whole.run.loader
    assert isinstance(loader, MixedLoader)
    assert (loader.position.step, loader.rehearsed.position.step) == (6, 2)
    plain = go(with_train(TEXT, steps=8), text, tmp_path / "plain")
    losses = [[line["loss"] for line in each.lines] for each in (whole, plain)]
    assert losses[0][:3] == losses[1][:3] and losses[0][3] != losses[1][3]
    for stop in (3, 8):
        pieces = go(with_train(recipe, steps=stop), text, tmp_path / "pieces")
    assert pieces.lines == whole.lines
    assert digest(pieces.run.objective) == digest(whole.run.objective)
    for changed in ({"rehearse": None}, {"rehearse": str(text.folder)}):
        with pytest.raises(ClearheadError):
            go(with_train(recipe, steps=9, **changed), text, tmp_path / "whole")
    other = make_text(tmp_path / "other", n=9)
    with pytest.raises(ClearheadError, match=r"train.rehearse='.*has no training split with the t"):
        opened(with_train(TEXT, rehearse=str(other.folder)), text, tmp_path / "run")


def corpus_of(lines: str, like: Corpus, folder: Path) -> Corpus:
    """Another text, with the tokenizer of a corpus."""
    (folder / "first.txt").write_text(lines, encoding="utf-8")
    tokenizer = str(like.folder / "tokenizer.json")
    data = replace(
        TEXT.data,
        train=("first.txt",),
        valid=("first.txt",),
        tokenizer="file",
        tokenizer_file=tokenizer,
        vocab_size=None,
    )
    return make_corpus(folder, data)
