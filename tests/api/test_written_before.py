"""Folders that were written by version 0.1.0 open. (A run that resumes: tests/security.)"""

import shutil
from pathlib import Path

import pytest

import clearhead as ch
from clearhead.data.corpus import open_corpus

BEFORE = Path(__file__).parent / "written_before"


def test_the_run_and_its_model_open_and_translate():
    run = ch.load(BEFORE / "run")
    assert isinstance(run, ch.TrainedRun) and run.recipe.train.steps == 2
    assert run.metrics[-1]["step"] == 2
    assert ch.load(BEFORE / "run" / "model").translate("aei") == run.translate("aei")


def test_the_prepared_folder_opens_and_belongs_to_the_run(tmp_path: Path):
    prepared = shutil.copytree(BEFORE / "tokens", tmp_path / "prepared")
    assert open_corpus(prepared).manifest.splits["train"].documents > 50


def test_text_that_is_gone_is_named_with_what_to_do():
    with pytest.raises(ch.ClearheadError, match=r"source\.txt matches no file; check the path"):
        ch.load(BEFORE / "run").evaluate(exact=True)
