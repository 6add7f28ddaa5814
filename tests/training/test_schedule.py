"""Every schedule against its formula, written out by hand."""

import math
from dataclasses import replace

import pytest

from clearhead.config import TrainConfig
from clearhead.errors import ConfigError
from clearhead.training.schedule import learning_rate, short_warmup

D_MODEL = 48


def rates(**settings) -> list[float]:
    config = TrainConfig(lr=0.02, steps=100, warmup_steps=10, **settings)
    return [learning_rate(step, config, D_MODEL) for step in range(1, 101)]


@pytest.mark.parametrize("schedule", ["noam", "inverse-sqrt", "constant", "cosine"])
def test_a_warm_up_longer_than_the_run_is_a_warning(schedule):
    assert short_warmup(TrainConfig(steps=4, warmup_steps=4000, schedule=schedule)) == (
        "warning: train.warmup_steps=4000 is more than train.steps=4, so the learning rate ends at "
        "0.1% of its highest value; try train.warmup_steps=1, or more steps"
    )
    assert not short_warmup(TrainConfig(steps=100, warmup_steps=100, schedule=schedule))
    config = TrainConfig(steps=30, warmup_steps=40, schedule=schedule)
    assert "ends at 75.0% of" in short_warmup(config)
    highest = learning_rate(40, replace(config, steps=100), D_MODEL)
    assert learning_rate(30, config, D_MODEL) == pytest.approx(0.75 * highest)


def test_noam_is_the_formula_of_the_paper():
    for step, rate in enumerate(rates(schedule="noam"), 1):
        assert rate == pytest.approx(0.02 * 48**-0.5 * min(step**-0.5, step * 10**-1.5))


def test_inverse_square_root_peaks_at_lr_when_the_warm_up_ends():
    found = rates(schedule="inverse-sqrt")
    for step, rate in enumerate(found, 1):
        wanted = 0.02 * step / 10 if step <= 10 else 0.02 * math.sqrt(10 / step)
        assert rate == pytest.approx(wanted)
    assert max(found) == found[9] == 0.02


def test_constant_stays_at_lr_after_its_warm_up():
    found = rates(schedule="constant")
    assert found[4] == pytest.approx(0.01)
    assert set(found[9:]) == {0.02}


def test_cosine_falls_by_half_a_wave_to_its_end():
    for step, rate in enumerate(rates(schedule="cosine", final_lr=0.1), 1):
        wave = 0.5 * (1 + math.cos(math.pi * (step - 10) / 90))
        wanted = 0.02 * step / 10 if step <= 10 else 0.02 * (0.1 + 0.9 * wave)
        assert rate == pytest.approx(wanted)


def test_wsd_warms_up_stays_and_falls_in_a_straight_line():
    found = rates(schedule="wsd", decay_steps=20, final_lr=0.05)
    for step, rate in enumerate(found, 1):
        if step <= 10:
            assert rate == pytest.approx(0.02 * step / 10)
        elif step <= 80:
            assert rate == 0.02
        else:
            assert rate == pytest.approx(0.02 * (1 - 0.95 * (step - 80) / 20))
    assert found[-1] == pytest.approx(0.02 * 0.05)


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_no_warm_up_starts_at_lr(schedule: str):
    config = TrainConfig(lr=0.5, steps=10, warmup_steps=0, schedule=schedule)
    assert learning_rate(1, config, D_MODEL) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("schedule", ["noam", "inverse-sqrt", "constant", "cosine", "wsd"])
def test_a_rate_is_finite_and_never_negative_far_beyond_the_end(schedule: str):
    config = TrainConfig(lr=0.5, steps=10, warmup_steps=3, schedule=schedule, decay_steps=3)
    for step in (1, 10, 11, 10_000, 10**9):
        assert 0 <= learning_rate(step, config, D_MODEL) <= 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "wsd"}, r"decay_steps=0 must be above 0 with schedule='wsd'; try"),
        ({"schedule": "wsd", "decay_steps": 950}, "decay_steps=950 and warmup_steps=100 are more"),
        ({"schedule": "noam", "warmup_steps": 0}, "warmup_steps=0 must be above 0"),
        ({"schedule": "cosin"}, "schedule='cosin' is not a valid choice; did you mean 'cosine'"),
        ({"lr": 0.0}, "lr=0.0 must be above 0"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0 must be at least 0 and below 1"),
        ({"patience": 3}, "validate_every=0 must be above 0 where"),
        ({"publish": "best"}, "validate_every=0 must be above 0 where"),
        ({"optimizer": "adafactor", "parallel": "fsdp"}, "optimizer='adafactor' cannot work on"),
        ({"replicas": 2}, "replicas=2 belongs to parallel='fsdp'"),
        ({"micro_batches": 0}, "micro_batches=0 must be a whole number of at least 1"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1 must be at least 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**settings)
