"""Tensor parallel alone, with FSDP2 and with HSDP against one process, in fp64."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.corpus import Corpus
from clearhead.errors import ClearheadError, ConfigError
from clearhead.models.own_parts import NONE, OwnParts
from clearhead.parts.norm import LayerNorm
from clearhead.training.checkpoint import Checkpoints
from clearhead.training.distributed import (
    Ranks,
    build_objective,
    joined_ranks,
    make_meshes,
)
from clearhead.training.rendezvous import agree_on_a_start, device_of
from clearhead.training.tensor_parallel import check_divisible
from tests.data.small_corpora import make_corpus, write_pairs
from tests.training.parallel_ranks import (
    MODELS,
    Found,
    Layout,
    Resumption,
    Weights,
    dropping,
    gathering,
    on_ranks,
    resume_all,
    train_a_little,
    train_all,
)
from tests.training.small import PAIRS, TEXT, with_model, with_train
from tests.training.two_ranks import STILL, weights_after

PAIR = Layout(tensor=2)
SHARDED = Layout()
REPLICATED = Layout(tensor=2, replicas=2)
FOUR = {"fsdp": SHARDED, "tensor parallel x fsdp": PAIR, "hsdp x tensor parallel": REPLICATED}
CLOSE, AFTER_STEPS = 1e-12, 1e-9


class OwnFeedForward(nn.Linear):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.d_model, config.d_model)


def largest_difference(found: Weights, wanted: Weights) -> float:
    """Relative to the largest number of all tensors: some gradients are 0 but for rounding."""
    assert found.keys() == wanted.keys()
    largest = max(tensor.abs().max() for tensor in wanted.values())
    return max(float((found[name] - wanted[name]).abs().max() / largest) for name in wanted)


def check_like_one_process(found: Found, wanted: Found) -> None:
    assert found.loss == pytest.approx(wanted.loss, rel=CLOSE)
    assert found.norm == pytest.approx(wanted.norm, rel=CLOSE)
    assert largest_difference(found.gradients, wanted.gradients) <= CLOSE
    assert largest_difference(found.weights, wanted.weights) <= AFTER_STEPS


@pytest.mark.slow
def test_two_tensor_parallel_ranks_compute_what_one_process_does():
    names = [name for name in MODELS if "grouped" in name]
    for (_, name), found in on_ranks(2, train_all, [PAIR], names, 2, {}).items():
        check_like_one_process(found, train_a_little(MODELS[name], Ranks(), steps=2))


@pytest.mark.slow
def test_weights_that_stay_gathered_change_no_bit(text: Corpus, tmp_path: Path):
    recipe = with_train(
        with_model(TEXT, **STILL), steps=4, validate_every=2, ema=0.5, publish="best"
    )
    sharded = with_train(recipe, parallel="fsdp")
    found = on_ranks(2, gathering, sharded, text.folder, tmp_path)
    (stay, after_stay), (go, after_go) = found["stay"], found["go"]
    assert (stay.loss, stay.norm) == (go.loss, go.norm)
    for one, other in ((stay.gradients, go.gradients), (stay.weights, go.weights)):
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert all(torch.equal(after_stay[name], after_go[name]) for name in after_go)
    wanted = weights_after(recipe, text, tmp_path / "one", Ranks())
    assert largest_difference(after_stay, wanted) <= 1e-5


@pytest.mark.slow
def test_dropout_is_that_of_one_process_and_the_stream_the_same_on_both_ranks():
    model = replace(MODELS["decoder, untied, alibi"], p_dropout=0.2)
    one, other = on_ranks(2, dropping, model)
    check_like_one_process(one, train_a_little(model, Ranks(), steps=2))
    for here, there in zip(one.replicated, other.replicated, strict=True):
        assert torch.equal(here, there)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "layouts", "settings"),
    [
        (2, [PAIR], {}),
        (4, [PAIR, REPLICATED], {}),
        (8, [REPLICATED], {}),
        (4, [Layout(tensor=4)], {"recompute": True, "loss_chunk": 7}),
    ],
)
def test_every_layout_trains_every_family_as_one_process_does(
    world: int, layouts: list[Layout], settings: dict
):
    names = list(MODELS) if world < 8 else list(MODELS)[::2]
    if layouts == [Layout(tensor=4)]:
        names = [name for name in names if MODELS[name].kv_heads % 4 == 0]
    found = on_ranks(world, train_all, layouts, names, 20, settings)
    assert len(found) == len(layouts) * len(names)
    for name in names:
        wanted = train_a_little(MODELS[name], Ranks(), steps=20)
        for layout in layouts:
            check_like_one_process(found[layout, name], wanted)


@pytest.fixture(scope="module")
def odd_pairs(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("odd")
    paths = write_pairs(folder, 151)
    return make_corpus(folder, replace(PAIRS.data, train=paths, valid=paths, vocab_size=301))


@pytest.mark.slow
def test_checkpoints_of_each_layout_resume_in_each_other(odd_pairs: Corpus, tmp_path: Path):
    """4 steps in one layout, 4 in another. In the same layout the resumed run has the bits of one
    that was not interrupted."""
    recipe = with_train(with_model(PAIRS, **STILL), save_every=100, micro_batches=2)
    corpus = odd_pairs.folder
    halves = {"one process": SHARDED, "tensor parallel": PAIR, **FOUR}
    worlds = {"one process": 1, "tensor parallel": 2, **dict.fromkeys(FOUR, 4)}

    def go(world: int, runs: list[Resumption]) -> dict[Path, Weights]:
        if world == 1:
            return resume_all(Ranks(), recipe, corpus, runs)
        return on_ranks(world, resume_all, recipe, corpus, runs)

    found: dict[Path, Weights] = {}
    for world in (1, 2, 4):
        names = [name for name in halves if worlds[name] == world]
        runs = [Resumption(halves[name], tmp_path / name, 4) for name in names]
        runs += [Resumption(halves[name], tmp_path / f"{name}, whole", 8) for name in names]
        found |= go(world, runs)
    for world in (1, 2, 4):
        runs = [
            Resumption(halves[after], tmp_path / f"{before} to {after}", 8, tmp_path / before)
            for after in halves
            if worlds[after] == world
            for before in halves
        ]
        found |= go(world, runs)

    wanted = found[tmp_path / "one process, whole"]
    assert largest_difference(found[tmp_path / "one process"], wanted) > 1e-3
    for before in halves:
        whole = found[tmp_path / f"{before}, whole"]
        assert largest_difference(whole, wanted) <= AFTER_STEPS
        for after in halves:
            resumed = found[tmp_path / f"{before} to {after}"]
            assert largest_difference(resumed, wanted) <= AFTER_STEPS, (before, after)
            if before == after:
                assert all(torch.equal(resumed[name], whole[name]) for name in whole), before


@pytest.mark.parametrize(
    ("changes", "group", "message"),
    [
        ({"n_heads": 8, "n_kv_heads": 2}, 4, "must divide model.n_kv_heads=2; try 2"),
        ({"d_ff": 22}, 4, "must divide model.d_ff=22; try 2"),
        ({"vocab_size": 5}, 4, "leaves a rank without any token of model.vocab_size=5; try fewer"),
        ({"p_attention_dropout": 0.1}, 2, "would drop the same weights on each"),
    ],
)
def test_what_cannot_be_divided_is_refused(changes: dict, group: int, message: str):
    model = ModelConfig(**{"d_model": 16, "n_heads": 8, "d_ff": 24, "vocab_size": 30, **changes})
    check_divisible(replace(model, p_attention_dropout=0.0), NONE, 1)
    with pytest.raises(ConfigError, match=message):
        check_divisible(model, NONE, group)


def test_parts_of_the_users_own_are_not_divided():
    with pytest.raises(ConfigError, match=r"a part of your own \(norm.py:LayerNorm\); try"):
        check_divisible(ModelConfig(), OwnParts(norm=LayerNorm), 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tensor_parallel": 4}, "tensor_parallel=4 must divide the number of ranks, 6; try"),
        (
            {"tensor_parallel": 2, "replicas": 2},
            "replicas=2 times train.tensor_parallel=2 must divide the number of ranks, 6",
        ),
    ],
)
def test_ranks_that_make_no_whole_groups_are_refused(settings: dict, message: str):
    train = TrainConfig(parallel="fsdp", **settings)
    ranks = Ranks(0, 6, torch.device("cpu"), sharded=True, tensor=train.tensor_parallel)
    with pytest.raises(ConfigError, match=message):
        make_meshes(train, ranks)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tensor_parallel": 2}, "tensor_parallel=2 needs at least 2 processes, but this is one"),
        (
            {"replicas": 3},
            "replicas=3 .*start them: PYTHONSAFEPATH=1 torchrun --nproc-per-node 3 .*replicas=1",
        ),
        ({"replicas": 3, "tensor_parallel": 2}, "torchrun --nproc-per-node 6"),
    ],
)
def test_one_process_does_not_ignore_that_it_should_be_several(settings: dict, message: str):
    config = TrainConfig(parallel="fsdp", **settings)
    with pytest.raises(ConfigError, match=message), joined_ranks(config):
        pass


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_group_of_the_checkpoints_waits_as_long_as_the_ranks_do(group: None, monkeypatch):
    seen: list[timedelta] = []

    def new_group(backend: str, timeout: timedelta) -> dist.ProcessGroup | None:
        seen.append(timeout)
        return dist.group.WORLD

    monkeypatch.setattr(dist, "new_group", new_group)
    Checkpoints(None, Ranks(world=2, timeout=timedelta(minutes=7)))
    assert seen == [timedelta(minutes=7)]


def test_what_the_host_knows_does_not_go_through_the_device(group: None, monkeypatch):
    kinds: list[str] = []
    reduce = dist.all_reduce

    def watched(tensor: torch.Tensor, **settings: Any) -> None:
        kinds.append(tensor.device.type)
        reduce(tensor, **settings)

    monkeypatch.setattr(dist, "all_reduce", watched)
    ranks = Ranks(world=4, device=torch.device("meta"), tensor=2)
    assert ranks.any(True) and not ranks.any(False)
    assert ranks.count(6) == 3, "two ranks have counted the same samples"
    assert kinds == ["cpu"] * 3


@pytest.mark.parametrize(
    ("kind", "expected"), [("cpu", "cpu"), ("mps", "cpu"), ("cuda", "cuda:1"), ("xpu", "xpu:1")]
)
def test_each_rank_of_a_machine_has_a_device_of_its_own(kind: str, expected: str, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert device_of(1, kind) == torch.device(expected)


def test_more_ranks_than_devices_are_refused(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    with pytest.raises(ClearheadError, match=r"local rank 2 .* has 2 \(cuda\); .*-per-node 2"):
        device_of(2, "cuda")


def test_ranks_agree_on_a_start_although_the_dead_have_left_theirs():
    store, minute = dist.HashStore(), timedelta(minutes=1)
    store.set("clearhead/start", "of ranks that have never met")

    def start() -> list[str]:
        with ThreadPoolExecutor() as pool:
            others = [pool.submit(agree_on_a_start, store, rank, 3, minute) for rank in (2, 1)]
            time.sleep(0.1)  # they have read what the dead have left
            first = pool.submit(agree_on_a_start, store, 0, 3, minute)
            return [each.result() for each in (first, *others)]

    names = [start(), start()]
    assert all(len(set(each)) == 1 for each in names) and names[0] != names[1]


def test_a_rank_that_never_starts_is_named():
    store, soon = dist.HashStore(), timedelta(seconds=0.3)
    with pytest.raises(ClearheadError, match=r"rank 0 waited .* for rank 1; see the output of"):
        agree_on_a_start(store, 0, 3, soon)
    with pytest.raises(ClearheadError, match=r"rank 2 waited 0.005 minutes for rank 0; see"):
        agree_on_a_start(store, 2, 3, soon)


def test_only_buffers_of_the_users_own_parts_are_sent_in_each_step(group: None):
    model = MODELS["translator, tied, grouped queries"]
    for parts, sent in ((NONE, False), (OwnParts(feed_forward=OwnFeedForward), True)):
        built = build_objective(model, TrainConfig(), Ranks(world=2), packed=False, own_parts=parts)
        assert isinstance(built, DistributedDataParallel)
        assert built.forward_sync_buffers is sent


def test_tensor_parallel_without_sharding_is_refused():
    with pytest.raises(ConfigError, match="tensor_parallel=2 belongs to parallel='fsdp'"):
        TrainConfig(tensor_parallel=2)
    with pytest.raises(ConfigError, match="compile=True is not supported with tensor_parallel=2"):
        TrainConfig(tensor_parallel=2, parallel="fsdp", compile=True)
