"""Confidence means chrF++: learnt from held-out text, kept with the weights, and the same wherever
it is shown."""

import json
import math
import random
import shutil
from pathlib import Path

import pytest

import clearhead as ch
from clearhead.cli import main
from clearhead.config import BeamConfig
from clearhead.decoding.engine import model_hash
from clearhead.decoding.rating import joint_confidence, mean_log_prob
from clearhead.decoding.results import Output
from clearhead.errors import ConfigError, FolderError, InputError
from clearhead.evaluation.calibrating import JudgedTranslation, calibrate
from clearhead.interop.calibration import CALIBRATION, Calibration, read_calibration
from tests.localise.catalogues import PO, check_with_msgfmt

pytest.importorskip("sacrebleu", reason="needs the extra eval")
SOURCES = [f"File {n} has {n * n} lines." for n in range(60)]
REFERENCES = [f"文件 {n} 有 {n * n} 行。" for n in range(60)]
SEARCH = {"beam": 2, "max_new": 12}
CURVE = Calibration(
    constant=1.2,
    of_log_prob=0.8,
    of_length=-0.4,
    least_log_prob=-4.0,
    most_log_prob=0.0,
    least_length=0.0,
    most_length=4.0,
)


@pytest.fixture
def folder(run: ch.TrainedRun, tmp_path: Path) -> Path:
    """A model of one's own, not calibrated yet."""
    return Path(shutil.copytree(run.folder / "model", tmp_path / "ui"))


@pytest.fixture
def calibrated(folder: Path) -> ch.TextModel:
    model = ch.load(folder)
    ch.calibrate(model, source=SOURCES, reference=REFERENCES, **SEARCH)
    return model


def judged(n: int) -> list[JudgedTranslation]:
    """Sentences that are right to a share that `CURVE` gives, in the mean."""
    rng = random.Random(3)
    rows: list[JudgedTranslation] = []
    for _ in range(n):
        log_prob, n_tokens = -4 * rng.random(), rng.randint(1, 50)
        expected = CURVE.confidence(log_prob, n_tokens)
        rows.append(JudgedTranslation(log_prob, n_tokens, rng.betavariate(2, 2 / expected - 2)))
    return rows


def test_the_curve_behind_held_out_text_is_found():
    measured = calibrate(judged(4000))
    for log_prob, n_tokens in [(-0.1, 2), (-0.5, 10), (-1.5, 30), (-3.0, 45)]:
        found = measured.calibration.confidence(log_prob, n_tokens)
        assert found == pytest.approx(CURVE.confidence(log_prob, n_tokens), abs=0.02)
    assert measured.error < 0.02 < measured.error_before
    assert measured.worst_found["confidence"] > measured.worst_found["length"]
    assert measured.worst_found["chance"] == 0.1
    assert [point.n for point in measured.points] == [400] * 10
    confidences = [point.confidence for point in measured.points]
    assert confidences == sorted(confidences)


def test_scores_that_say_nothing_give_the_mean():
    rows = [JudgedTranslation(-1.0, 7, quality) for quality in [0.0, 0.3, 0.9] * 20]
    assert calibrate(rows).calibration.confidence(-1.0, 7) == pytest.approx(0.4, abs=0.01)
    perfect = [JudgedTranslation(-0.01 * n, n, 1.0) for n in range(1, 61)]
    assert calibrate(perfect).calibration.confidence(-0.3, 30) > 0.99
    with pytest.raises(InputError, match=r"there are 12 translations .* 50 are needed"):
        calibrate(rows[:12])


def test_beyond_what_was_seen_the_curve_is_level():
    assert CURVE.confidence(-9.0, 10**9) == CURVE.confidence(-4.0, 55)
    assert CURVE.confidence(-math.inf, 0) == CURVE.confidence(-4.0, 1)


def test_a_text_has_the_confidence_of_its_sentences_by_tokens():
    def part(n: int, confidence: float | None) -> Output:
        tokens = list(range(n))
        return Output(tokens=tokens, log_probs=[], score=0.0, stop="end", confidence=confidence)

    assert joint_confidence([part(1, 0.1), part(3, 0.9)]) == pytest.approx(0.7)
    assert joint_confidence([part(1, 0.1), part(3, None)]) is None
    assert joint_confidence([]) is None


def test_the_old_name_of_the_confidence_warns():
    output = Output(tokens=[5], log_probs=[0.0], score=0.0, stop="end", confidence=0.4)
    with pytest.warns(DeprecationWarning, match=r"write Output\.confidence") as told:
        assert output.calibrated == 0.4
    assert told[0].filename == __file__ and output.mean_probability == 1.0


@pytest.mark.parametrize("beam", [BeamConfig(alpha=0.6), BeamConfig(length_penalty="none")])
def test_without_log_probabilities_of_tokens_the_score_gives_their_mean(beam: BeamConfig):
    own = Output(tokens=[5, 6, 2], log_probs=[-1.0, -0.5, -0.3], score=0.0, stop="end")
    score = own.log_prob / beam.normaliser(3)
    other = Output(tokens=own.tokens, log_probs=[], score=score, stop="end")
    assert mean_log_prob(other, beam) == pytest.approx(mean_log_prob(own, beam))
    assert mean_log_prob(own, beam) == pytest.approx(-0.6)


def test_a_calibrated_model_gives_each_translation_its_confidence(folder: Path):
    model = ch.load(folder)
    before, hashed = model.translations(SOURCES[:3], **SEARCH), model_hash(folder)
    assert all(outputs[0].confidence is None for outputs in before)
    measured = ch.calibrate(model, source=SOURCES, reference=REFERENCES, **SEARCH)
    assert str(measured).endswith(f"written: {folder / CALIBRATION}")
    assert len(measured.records) == 11 and 0 <= measured["error"] <= 1
    assert model_hash(folder) == hashed, "CTranslate2 need not convert the model again"
    for opened in (model, ch.load(folder)):
        after = opened.translations(SOURCES[:3], **SEARCH)
        assert [outputs[0].text for outputs in after] == [outputs[0].text for outputs in before]
        for outputs in after:
            confidence = outputs[0].confidence
            assert confidence is not None and 0 < confidence < 1
    kept = json.loads((folder / CALIBRATION).read_text(encoding="utf-8"))
    assert kept["text"] == "given lines" and kept["n"] == 60 and len(kept["points"]) == 10


def test_both_engines_give_the_same_confidence(tmp_path: Path):
    pytest.importorskip("ctranslate2", reason="needs the extra serve")
    folder = shutil.copytree(Path(ch.load("copy-task").folder), tmp_path / "copies")
    model, words = ch.load(folder), [" ".join(f"w{n}" for n in range(k, k + 5)) for k in range(60)]
    search = {"beam": 1, "max_new": 12}
    ch.calibrate(model, source=words, reference=words, **search)
    own = model.translations(words[:5], **search)
    engine = {"engine": "ctranslate2", "engine_folder": tmp_path / "engine"}
    there = model.translations(words[:5], **engine, **search)
    for (first, *_), (second, *_) in zip(own, there, strict=True):
        assert first.tokens == second.tokens and not second.log_probs
        assert first.confidence is not None
        assert first.confidence == pytest.approx(second.confidence, abs=1e-4)


def test_the_command_prints_the_curve_and_details_show_the_confidence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    source, reference = tmp_path / "in.txt", tmp_path / "ref.txt"
    source.write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    reference.write_text("\n".join(REFERENCES) + "\n", encoding="utf-8")
    files = ["--source", str(source), "--reference", str(reference)]
    search = ["--beam", "1", "--max-new", "9"]
    only = ["calibrate", str(folder), *files, *search, "--no-save", "--format", "jsonl"]
    assert main(only) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()][-1]["n"] == 60
    details = ["translate", str(folder), "--input", str(source), *search, "--details"]
    assert main(details) == 2
    assert "calibrate the model (clearhead calibrate)" in capsys.readouterr().err
    assert main(["calibrate", str(folder), *files, *search, "--quiet"]) == 0
    assert "calibration error 0." in capsys.readouterr().out
    assert main([*details, "--format", "jsonl"]) == 0
    told = capsys.readouterr()
    assert "line 60: confidence 0." in told.err
    first = json.loads(told.out.splitlines()[0])["translations"][0]
    assert 0 < first["confidence"] < 1
    assert main(["translate", str(folder), "--input", str(source), *search]) == 0
    assert "confidence" not in capsys.readouterr().err, "nobody asked"


def test_a_calibration_belongs_to_its_weights(calibrated: ch.TextModel, run: ch.TrainedRun):
    folder = calibrated.folder
    saved = (folder / CALIBRATION).read_text(encoding="utf-8")
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    with pytest.raises(FolderError, match="made with other weights"):
        read_calibration(folder)
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    for old, new in [("curve", "curves"), ("clearhead-calibration-1", "2"), ("-", "1e99-")]:
        (folder / CALIBRATION).write_text(saved.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(FolderError):
            read_calibration(folder)
    changed = json.loads(saved)
    for value in (True, "1", None, 1e300, [1]):
        changed["curve"]["constant"] = value
        (folder / CALIBRATION).write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(FolderError, match=r"constant is .*, not a number"):
            read_calibration(folder)


def test_what_is_not_the_users_is_not_written_to(run: ch.TrainedRun):
    with pytest.raises(ch.ClearheadError, match=r"does not translate; measure it with .*evaluate"):
        ch.calibrate("shakespeare-char", source=SOURCES, reference=REFERENCES)
    with pytest.raises(
        FolderError, match=r"tatoeba-en-zh is temporary or part of the installed.*save=False"
    ):
        ch.calibrate("tatoeba-en-zh", source=SOURCES, reference=REFERENCES)
    with pytest.raises(ConfigError, match="split='valid' is a part of the run's own data"):
        ch.calibrate(run, "valid", source=SOURCES, reference=REFERENCES)
    with pytest.raises(InputError, match="there are 6 translations"):
        ch.calibrate(run, **SEARCH)


def test_entries_of_low_confidence_stay_open(calibrated: ch.TextModel, tmp_path: Path):
    pytest.importorskip("translate", reason="needs the extra localise")
    path, out = tmp_path / "zh_CN.po", tmp_path / "out.po"
    path.write_text(PO, encoding="utf-8")
    everything = calibrated.fill_catalogue(path, out, **SEARCH)
    notes = [line for line in out.read_text("utf-8").splitlines() if "# clearhead: conf" in line]
    assert notes and all(line.endswith(", calibrated") for line in notes)
    sure = sorted(float(line.split()[3].rstrip(",")) for line in notes)
    middle = (sure[0] + sure[-1]) / 2
    some = calibrated.fill_catalogue(path, out, leave_below=middle, **SEARCH)
    check_with_msgfmt(out)
    assert 0 < len(some.unsure) < everything.translated
    assert some.translated + len(some.unsure) == everything.translated
    assert (some.kept, some.remembered) == (everything.kept, everything.remembered)
    assert everything.unsure == []
    with pytest.raises(ConfigError, match="leave_below=40 must be from 0 to 1"):
        calibrated.fill_catalogue(path, out, leave_below=40)


def test_without_a_calibration_no_entry_is_left_by_its_confidence(folder: Path, tmp_path: Path):
    pytest.importorskip("translate", reason="needs the extra localise")
    path = tmp_path / "zh_CN.po"
    path.write_text(PO, encoding="utf-8")
    with pytest.raises(InputError, match=r"ui is not calibrated; .*clearhead\.calibrate"):
        ch.load(folder).fill_catalogue(path, leave_below=0.4)
    assert path.read_text(encoding="utf-8") == PO
