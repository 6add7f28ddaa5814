"""The batches of a step are the same for any number of ranks, workers and restarts."""

import json
from collections.abc import Callable
from dataclasses import fields
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.config import BatchConfig
from clearhead.data.batches import IGNORED, NO_DOCUMENT, Batch, Corruption, PairBatch, move
from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.errors import ConfigError, DataError
from tests.drawing import draws

Corpora = Callable[[str], Corpus]
KINDS = ("pairs", "reserved", "joined", "text", "packed", "masked", "labelled", "classes")
WORLDS = (1, 2, 3, 4, 7)
# More workers than cores are slow, and must be right all the same.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def config_of(kind: str, **changes: Any) -> BatchConfig:
    layout = {"packed": "documents", "joined": "joined"}.get(kind, "stream")
    small: dict[str, Any] = {"length": 24, "batch_size": 5, "batch_tokens": 200, "window": 100}
    return BatchConfig(**{**small, "layout": layout, **changes})


def plain(batch: Batch) -> dict[str, Any]:
    return {
        field.name: value.tolist() if isinstance(value, torch.Tensor) else value
        for field in fields(batch)
        for value in [getattr(batch, field.name)]
    }


def rows_of(batch: Batch) -> list[tuple[Any, ...]]:
    """Each row of a batch without its padding on the right, which depends on its neighbours."""
    columns = []
    for values in plain(batch).values():
        # A class is one number, and 0 is one.
        columns.append([tuple(v) if isinstance(v, list | tuple) else (v, 1) for v in values])
    return [tuple(_unpadded(cell) for cell in row) for row in zip(*columns)]


def _unpadded(cell: tuple[int, ...]) -> tuple[int, ...]:
    end = len(cell)
    while end and cell[end - 1] in (0, NO_DOCUMENT, IGNORED):
        end -= 1
    return cell[:end]


def global_batches(
    corpus: Corpus, config: BatchConfig, n: int, world: int = 1, workers: int = 0, state=None
) -> tuple[list[list[tuple[Any, ...]]], dict[str, Any]]:
    """The first n batches, put together from the shares of all ranks, and the state after them."""
    shares, states = [], []
    for rank in range(world):
        loader = Loader(corpus, config, rank=rank, world=world, workers=workers)
        if state is not None:
            loader.load_state(json.loads(json.dumps(state)))
        shares.append([rows_of(batch) for batch in islice(loader, n)])
        states.append(loader.state())
    assert all(each == states[0] for each in states)
    whole = []
    for parts in zip(*shares):
        rows = [None] * sum(map(len, parts))
        for rank, part in enumerate(parts):
            rows[rank::world] = part
        whole.append(rows)
    return whole, states[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", WORLDS)
def test_all_ranks_together_read_the_same_global_batches(corpora: Corpora, kind: str, world: int):
    corpus, config = corpora(kind), config_of(kind)
    assert global_batches(corpus, config, 40, world) == global_batches(corpus, config, 40)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [1, 3])
def test_worker_processes_change_nothing(corpora: Corpora, kind: str, workers: int):
    corpus, config = corpora(kind), config_of(kind)
    found = [plain(batch) for batch in islice(Loader(corpus, config, workers=workers), 30)]
    assert found == [plain(batch) for batch in islice(Loader(corpus, config), 30)]


@settings(max_examples=draws(20, nightly=60))
@given(
    kind=st.sampled_from(KINDS),
    stop=st.integers(0, 90),
    worlds=st.tuples(st.sampled_from(WORLDS), st.sampled_from(WORLDS)),
    seed=st.integers(0, 3),
)
def test_stopping_anywhere_and_going_on_with_other_ranks_changes_nothing(
    pairs: Corpus,
    reserved: Corpus,
    text: Corpus,
    masked: Corpus,
    labelled: Corpus,
    classes: Corpus,
    kind: str,
    stop: int,
    worlds: tuple[int, int],
    seed: int,
):
    found = {"pairs": pairs, "joined": pairs, "text": text, "packed": text, "masked": masked}
    found |= {"reserved": reserved}
    corpus = {**found, "labelled": labelled, "classes": classes}[kind]
    config = config_of(kind, seed=seed)
    whole, _ = global_batches(corpus, config, stop + 6)
    head, state = global_batches(corpus, config, stop, worlds[0])
    tail, _ = global_batches(corpus, config, 6, worlds[1], state=state)
    assert head + tail == whole


@pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 0), (1, 3)])
def test_stopping_and_going_on_with_other_workers_changes_nothing(
    corpora: Corpora, before: int, after: int
):
    corpus, config = corpora("pairs"), config_of("pairs")
    whole, _ = global_batches(corpus, config, 20)
    head, state = global_batches(corpus, config, 7, world=2, workers=before)
    tail, _ = global_batches(corpus, config, 13, world=3, workers=after, state=state)
    assert head + tail == whole


@pytest.mark.parametrize("kind", KINDS)
def test_every_epoch_brings_every_sample_once_in_an_order_of_its_own(corpora: Corpora, kind: str):
    corpus, config = corpora(kind), config_of(kind)
    loader = Loader(corpus, config, epochs=3)
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    epoch = 0
    for batch in loader:
        seen[epoch] += [sample for row in batch.samples for sample in dict.fromkeys(row)]
        epoch = loader.position.epoch
    n = loader.layout.n_samples
    if kind == "packed":  # a long document comes in pieces
        seen = {epoch: list(dict.fromkeys(samples)) for epoch, samples in seen.items()}
    assert all(sorted(samples) == list(range(n)) for samples in seen.values())
    assert seen[0] != seen[1] != seen[2]


def test_a_pair_has_the_same_numbers_on_both_sides_and_others_in_each_epoch(reserved: Corpus):
    first = reserved.tokenizers["target"].placeholder_ids[0]
    numbers: dict[int, set[tuple[int, int]]] = {}
    for batch in Loader(reserved, config_of("reserved"), epochs=3):
        assert isinstance(batch, PairBatch)
        for source, target, (sample,) in zip(batch.source, batch.target_output, batch.samples):
            ours, theirs = (
                [index - first for index in side.tolist() if first <= index < first + 7]
                for side in (source, target)
            )
            assert len(ours) == 2
            assert theirs == ours[::-1]
            numbers.setdefault(sample, set()).add((ours[0], ours[1]))
    assert sum(len(seen) > 1 for seen in numbers.values()) > 0.9 * len(numbers)
    assert {number for seen in numbers.values() for pair in seen for number in pair} == {*range(7)}


def test_a_rank_without_a_share_gets_an_empty_batch_and_stays_in_step(corpora: Corpora):
    config = config_of("text", batch_size=2)
    loaders = [Loader(corpora("text"), config, rank=rank, world=3) for rank in range(3)]
    batches = [next(iter(loader)) for loader in loaders]
    assert [len(batch.samples) for batch in batches] == [1, 1, 0]
    assert plain(batches[2])["inputs"] == []
    assert batches[2].inputs.shape == (0, 24)
    assert len({loader.position for loader in loaders}) == 1
    empty = next(iter(Loader(corpora("pairs"), config_of("pairs"), rank=99, world=100)))
    assert empty.source.shape == (0, 1)


def test_pairs_start_with_bos_end_with_eos_and_are_padded_on_the_right(corpora: Corpora):
    corpus = corpora("pairs")
    sides = {side: corpus.store("train", side) for side in ("source", "target")}
    for batch in islice(Loader(corpus, config_of("pairs")), 10):
        for row, (sample,) in enumerate(batch.samples):
            source = sides["source"].document(sample).tolist()
            target = sides["target"].document(sample).tolist()
            assert source[-1] == target[-1] == 2
            assert _unpadded(tuple(batch.source[row].tolist())) == tuple(source)
            assert _unpadded(tuple(batch.target_output[row].tolist())) == tuple(target)
            assert _unpadded(tuple(batch.target_input[row].tolist())) == (1, *target[:-1])


def test_a_joined_row_is_source_start_and_target_and_only_the_target_is_to_be_guessed(
    corpora: Corpora,
):
    corpus = corpora("joined")
    sides = {side: corpus.store("train", side) for side in ("source", "target")}
    for batch in islice(Loader(corpus, config_of("joined")), 10):
        assert batch.inputs.numel() <= 200
        for row, (sample,) in enumerate(batch.samples):
            source, target = (sides[side].document(sample).tolist() for side in sides)
            n = len(source) + len(target)
            assert batch.inputs[row].tolist()[:n] == [*source, 1, *target[:-1]]
            assert batch.targets[row].tolist()[:n] == [*[IGNORED] * len(source), *target]
            assert batch.documents[row].tolist()[:n] == [0] * n
            assert set(batch.targets[row].tolist()[n:]) <= {IGNORED}
            assert set(batch.documents[row].tolist()[n:]) <= {NO_DOCUMENT}


def test_a_text_cannot_be_joined(corpora: Corpora):
    with pytest.raises(ConfigError, match="joins the two sides of pairs, but this corpus is for"):
        Loader(corpora("text"), config_of("joined"))


@pytest.mark.parametrize("budget", [90, 200, 5_000])
def test_no_batch_of_pairs_exceeds_its_budget(corpora: Corpora, budget: int):
    config = config_of("pairs", batch_tokens=budget, window=1_000)
    for batch in Loader(corpora("pairs"), config, epochs=1):
        assert max(batch.source.numel(), batch.target_output.numel()) <= budget


def test_like_lengths_come_together(corpora: Corpora):
    def padding(window: int) -> float:
        config = config_of("pairs", batch_tokens=300, window=window)
        batches = list(Loader(corpora("pairs"), config, epochs=1))
        tensors = [t for batch in batches for t in (batch.source, batch.target_output)]
        return sum(int((t == 0).sum()) for t in tensors) / sum(t.numel() for t in tensors)

    assert padding(400) < 0.7 * padding(8)


def test_samples_of_a_stream_are_its_tokens_in_a_row_with_their_documents(corpora: Corpora):
    store = corpora("text").store("train", "text")
    row = store.read(0, store.n_tokens)
    for batch in islice(Loader(corpora("text"), config_of("text")), 10):
        for number, (sample,) in enumerate(batch.samples):
            start = sample * 24
            assert batch.inputs[number].tolist() == row[start : start + 24].tolist()
            assert batch.targets[number].tolist() == row[start + 1 : start + 25].tolist()
            # A new document begins after each <eos>.
            ended = np.cumsum([0, *(row[start : start + 23] == 2)])
            assert batch.documents[number].tolist() == ended.tolist()


def test_packed_documents_are_guessed_token_by_token_from_themselves_alone(corpora: Corpora):
    """Put together again by document, the targets are the corpus, and each input is the token
    before its target, or <bos> at a document's start."""
    corpus = corpora("packed")
    store = corpus.store("train", "text")
    found: dict[int, list[tuple[int, int]]] = {}
    n_rows = n_positions = 0
    for batch in Loader(corpus, config_of("packed"), epochs=1):
        for row, samples in enumerate(batch.samples):
            n_rows += 1
            places = batch.documents[row].tolist()
            n_positions += sum(place != NO_DOCUMENT for place in places)
            for before, after, place in zip(
                batch.inputs[row].tolist(), batch.targets[row].tolist(), places
            ):
                if place == NO_DOCUMENT:
                    assert (before, after) == (0, IGNORED)
                else:
                    found.setdefault(samples[place], []).append((before, after))
    assert n_positions == store.n_tokens
    assert n_positions / (n_rows * 24) > 0.9
    for number in range(store.n_documents):
        tokens = store.document(number).tolist()
        expected = list(zip([1, *tokens[:-1]], tokens))
        # Pieces of a long document may come in any order; each is a run of it.
        assert sorted(found[number]) == sorted(expected)


def test_corruption_is_80_10_10_of_the_chosen_tokens():
    corruption = Corruption(
        p_mask=0.15, mask_id=3, control_ids=frozenset({0, 1, 2, 3}), vocab_size=1_000
    )
    tokens = np.tile(np.arange(2, 502), 400)
    inputs, targets = corruption(tokens, key=11)
    chosen = targets != IGNORED
    assert not chosen[tokens == 2].any()
    assert abs(chosen[tokens != 2].mean() - 0.15) < 0.005
    assert (inputs[~chosen] == tokens[~chosen]).all()
    assert (targets[chosen] == tokens[chosen]).all()
    masked = (inputs[chosen] == 3).mean()
    kept = (inputs[chosen] == tokens[chosen]).mean()
    assert abs(masked - 0.8) < 0.01
    assert abs(kept - 0.1) < 0.01
    replaced = inputs[chosen & (inputs != 3) & (inputs != tokens)]
    assert replaced.min() >= 4 and replaced.max() < 1_000
    assert len(np.unique(replaced)) > 900


def test_corruption_follows_from_the_seed_and_the_sample_alone(corpora: Corpora):
    def by_sample(**changes: Any) -> dict[int, list[int]]:
        loader = Loader(corpora("masked"), config_of("masked", **changes), epochs=1)
        return {
            sample: batch.inputs[row].tolist()
            for batch in loader
            for row, (sample,) in enumerate(batch.samples)
        }

    assert by_sample() == by_sample(batch_size=11)
    assert by_sample() != by_sample(seed=2)


def test_the_state_is_a_few_numbers_and_what_they_belong_to(corpora: Corpora):
    loader = Loader(corpora("pairs"), config_of("pairs"))
    list(islice(loader, 3))
    state = loader.state()
    assert {name: state[name] for name in ("step", "epoch", "window", "batch")} == {
        "step": 3,
        "epoch": 0,
        "window": 0,
        "batch": 3,
    }
    assert json.loads(json.dumps(state)) == state
    assert len(json.dumps(state)) < 500


def test_a_position_in_other_batches_is_refused_with_what_changed(corpora: Corpora, text: Corpus):
    state = Loader(corpora("pairs"), config_of("pairs")).state()
    other = Loader(corpora("pairs"), config_of("pairs", seed=9, batch_tokens=300))
    with pytest.raises(DataError, match=r"seed was 1, is 9; .*batch_tokens was 200, is 300"):
        other.load_state(state)
    with pytest.raises(DataError, match=r"the data was \w{12}…, is \w{12}…"):
        Loader(text, config_of("text")).load_state(state)


@pytest.mark.parametrize(
    ("kind", "large"), [("packed", {"batch_size": 50}), ("pairs", {"batch_tokens": 5000})]
)
def test_a_window_that_holds_less_than_a_batch_is_reported(corpora: Corpora, caplog, kind, large):
    Loader(corpora(kind), config_of(kind))
    assert not caplog.messages
    Loader(corpora(kind), config_of(kind, window=4, **large))
    (message,) = caplog.messages
    assert "a window of 4 samples has about" in message
    enough = int(message.rpartition("=")[2])
    Loader(corpora(kind), config_of(kind, window=enough, **large))
    assert len(caplog.messages) == 1


def test_reading_leaves_the_random_numbers_of_the_model_alone(corpora: Corpora):
    before = torch.get_rng_state()
    list(islice(Loader(corpora("text"), config_of("text")), 3))
    assert torch.equal(torch.get_rng_state(), before)


def test_settings_that_cannot_work_are_refused(corpora: Corpora):
    with pytest.raises(ConfigError, match=r"batch_tokens=10 must hold the longest sample of train"):
        Loader(corpora("pairs"), config_of("pairs", batch_tokens=10))
    with pytest.raises(ConfigError, match=r"length=99999 must be below the \d+ tokens of train"):
        Loader(corpora("text"), config_of("text", length=99_999))
    with pytest.raises(ConfigError, match=r"layout='documents' packs documents for a language"):
        Loader(corpora("masked"), config_of("masked", layout="documents"))
    with pytest.raises(ConfigError, match="rank=2 must be at least 0 and below world=2"):
        Loader(corpora("text"), config_of("text"), rank=2, world=2)
    with pytest.raises(DataError, match="has no split 'valid'; choose one of 'train'"):
        Loader(corpora("text"), config_of("text"), split="valid")


# By kind: the samples of the second batch, and those of a batch further into the second epoch.
# Written down once; never made anew to please a change.
# fmt: off
WRITTEN_DOWN = {
    "pairs": {
        2: [254, 150, 221, 34, 210, 287, 172, 227, 117, 106, 272, 282, 134, 249],
        48: [62, 282, 249, 244, 183, 161, 211, 222, 90, 2, 256, 283],
    },
    "reserved": {
        2: [90, 64, 151, 3, 316, 134, 48, 224],
        70: [132, 154, 231, 248, 144, 320, 149, 33, 275, 11, 143, 105, 50, 12],
    },
    "joined": {2: [19, 178, 249, 90, 107, 151], 84: [79, 2, 19, 222, 249, 90]},
    "text": {2: [4, 163, 173, 33, 98], 45: [209, 132, 69, 91, 61]},
    "packed": {
        2: [(206, 88), (101, 146), (205, 139), (14, 33), (172, 71)],
        63: [(196, 167), (101, 81, 236), (94, 235), (58,), (225,)],
    },
    "masked": {2: [4, 163, 173, 33, 98], 46: [209, 132, 69, 91, 61]},
    "labelled": {
        2: [141, 255, 316, 172, 123, 53, 183, 311, 37, 192, 295, 159, 221, 149, 8, 5],
        44: [230, 277, 166, 71, 127, 164, 284, 61, 187, 113, 173, 317, 337],
    },
    "classes": {
        2: [2, 74, 141, 183, 311, 316, 172, 53, 192, 295, 37, 159, 221, 149, 57, 8],
        44: [283, 211, 301, 306, 240, 339, 213, 214],
    },
}
# The numbers of the reserved tokens in the first three sources of each of those two batches.
RESERVED_NUMBERS = {2: [[1, 6], [4, 3], [3, 6]], 70: [[4, 5], [5, 3], [3, 4]]}
# The first row of each of those two batches, 3 being <mask>.
MASKED_ROWS = {
    2: [3, 224, 261, 266, 285, 224, 298, 85, 266, 285, 224, 261,
        224, 296, 72, 224, 298, 85, 224, 296, 3, 2, 287, 224],
    46: [265, 280, 266, 264, 297, 224, 294, 2, 3, 285, 3, 267,
         224, 276, 224, 294, 266, 3, 224, 3, 224, 276, 265, 267],
}
# fmt: on


@pytest.mark.parametrize("kind", KINDS)
def test_the_batches_of_this_version_are_those_of_every_version(corpora: Corpora, kind: str):
    """A run that is resumed with a later version must go on with the same batches."""
    early, late = WRITTEN_DOWN[kind]
    loader = Loader(corpora(kind), config_of(kind, seed=5))
    batches = list(islice(loader, late))
    assert loader.position.epoch == 1
    for number in (early, late):
        batch = batches[number - 1]
        samples = [row[0] if kind != "packed" else row for row in batch.samples]
        assert samples == WRITTEN_DOWN[kind][number]
        if kind == "masked":
            assert batch.inputs[0].tolist() == MASKED_ROWS[number]
        if kind == "reserved":
            first = loader.layout.renumber.sides[0].tolist()
            rows = [[i for i in row.tolist() if i in first] for row in batch.source[:3]]
            numbers = [[first.index(i) for i in row] for row in rows]
            assert numbers == RESERVED_NUMBERS[number]


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_of_a_batch_moves_and_its_sample_numbers_stay(kind: str, corpora: Corpora):
    """To a device without memory: how a real one copies is not seen here."""
    batch = next(iter(Loader(corpora(kind), config_of(kind))))
    moved = move(batch, torch.device("meta"))
    assert type(moved) is type(batch) and moved.samples == batch.samples
    for field in fields(batch):
        here, there = getattr(batch, field.name), getattr(moved, field.name)
        if field.name != "samples":
            assert there.device.type == "meta" and there.shape == here.shape
