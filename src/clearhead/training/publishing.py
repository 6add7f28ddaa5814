"""Writes the model folder of a run: chooses its weights, and replaces an older folder."""

import shutil

from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.interop.labels import Labels, write_labels
from clearhead.interop.model_folder import TokenIds, save_model
from clearhead.training.averaging import NamedWeights, average_of, borrowed
from clearhead.training.distributed import objective_of, whole_model
from clearhead.training.report import NEW_MODEL
from clearhead.training.run import Run, Say
from clearhead.training.validation import validate


def publish(run: Run, corpus: Corpus, say: Say) -> None:
    """Write the model folder in place of an older one."""
    with borrowed(objective_of(run.objective), published_weights(run, say)):
        model = whole_model(run.objective, run.ranks)
        if model is None:
            return
        new, current, old = (run.folder / name for name in (NEW_MODEL, "model", ".model.old"))
        # an earlier process was killed between the two renames
        if old.exists() and not current.exists():
            old.rename(current)
        shutil.rmtree(new, ignore_errors=True)
        tokenizers, task = list(corpus.tokenizers.values()), corpus.manifest.task
        layout = run.recipe.batches.layout
        ids = TokenIds.of_run(tokenizers[-1], layout, task=task, strip=corpus.strips)
        save_model(model, new, ids=ids, tokenizer=corpus.folder)
        if task == "classification" and corpus.label_as == "token":
            mask = tokenizers[0].mask_id
            assert mask is not None
            write_labels(new, Labels(mask=mask, ids=corpus.labels))
        shutil.rmtree(old, ignore_errors=True)
        if current.exists():
            current.rename(old)
        new.rename(current)
        shutil.rmtree(old, ignore_errors=True)


def published_weights(run: Run, say: Say) -> NamedWeights | None:
    """Return the weights for the model folder; None: the present ones."""
    publish = run.recipe.train.publish
    if publish == "last" or not run.state.step:
        return run.ema
    objective, state = objective_of(run.objective), run.state
    present = run.checkpoints.steps()
    steps = present[-run.recipe.train.keep :]
    if publish == "best":
        best = run.checkpoints.best(state.best_step, present)
        steps = [] if best is None else [best]
        if best is not None and best != state.best_step:
            say(
                f"warning: the best step, {state.best_step}, has no checkpoint; publishing step "
                f"{best}, the best before it"
            )
    checkpoints = [run.checkpoints.verified(step) for step in steps]
    for _, damage in checkpoints:
        if damage:
            say(f"warning: {damage}")
    whole = [checkpoint for checkpoint, _ in checkpoints if checkpoint is not None]
    if not whole:
        say(f"warning: publish={publish!r} found no usable checkpoint; publishing the last weights")
        return run.ema
    part = "ema" if run.ema else "model"
    weights = average_of(run.checkpoints, whole, objective, part=part)
    if publish == "average" and _average_is_worse(run, weights, say):
        return run.ema
    return weights


def _average_is_worse(run: Run, average: NamedWeights, say: Say) -> bool:
    """Tell whether validation finds the last weights better than the average of checkpoints. While
    a model still learns quickly, an average over many steps lags far behind it."""
    if run.valid is None:
        return False
    of_average, of_last = (
        _validation_loss(run, run.valid, weights) for weights in (average, run.ema)
    )
    worse = not of_average <= of_last  # NaN counts as worse too
    if worse:
        say(
            f"the last weights are published: their validation loss is {of_last:.4f}, that of the "
            f"average of checkpoints {of_average:.4f}"
        )
    return worse


def _validation_loss(run: Run, valid: Loader, weights: NamedWeights | None) -> float:
    with borrowed(objective_of(run.objective), weights):
        micro_batches = run.recipe.train.micro_batches
        return validate(run.objective, valid, run.ranks, micro_batches=micro_batches)["loss"]
