"""Token files hold what was written, in datatrove's layout, and are read across their borders."""

import pickle
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.token_files import TokenFile, TokenFileWriter, TokenStore, token_dtype
from clearhead.errors import DataError

DOCUMENTS = st.lists(st.lists(st.integers(0, 65_535), max_size=6), max_size=12)


def write(folder: Path, name: str, documents: list[list[int]], vocab_size: int = 500) -> TokenFile:
    writer = TokenFileWriter(folder, name, token_dtype(vocab_size))
    for document in documents:
        writer.add(np.array(document, np.uint32), np.array([len(document)]))
    return TokenFile(folder, writer.finish())


def test_the_layout_is_flat_tokens_and_document_ends(tmp_path: Path):
    write(tmp_path, "a.ds", [[5, 6, 2], [], [7, 2]])
    assert (tmp_path / "a.ds").read_bytes() == struct.pack("<5H", 5, 6, 2, 7, 2)
    assert (tmp_path / "a.ds.index").read_bytes() == struct.pack("<3Q", 3, 3, 5)


@pytest.mark.parametrize(("vocab_size", "width"), [(65_536, 2), (65_537, 4)])
def test_tokens_take_two_bytes_while_they_suffice(tmp_path: Path, vocab_size: int, width: int):
    file = write(tmp_path, "a.ds", [[vocab_size - 1]], vocab_size)
    assert (tmp_path / "a.ds").stat().st_size == width
    assert file.tokens.tolist() == [vocab_size - 1]


@pytest.mark.slow
@given(files=st.lists(DOCUMENTS, min_size=1, max_size=4), data=st.data())
def test_many_files_read_as_one(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[list[int]]], data: st.DataObject
):
    folder = tmp_path_factory.mktemp("files")
    store = TokenStore([write(folder, f"{n}.ds", each) for n, each in enumerate(files)])
    documents = [document for each in files for document in each]
    row = [token for document in documents for token in document]
    assert (store.n_documents, store.n_tokens) == (len(documents), len(row))
    start = data.draw(st.integers(0, len(row)))
    stop = data.draw(st.integers(start, len(row)))
    if start < stop:
        assert store.read(start, stop).tolist() == row[start:stop]
        numbers = np.repeat(np.arange(len(documents)), [len(each) for each in documents])
        # Numbered from 0 in the slice; empty documents leave no gap that matters to a mask.
        _, expected = np.unique(numbers[start:stop], return_inverse=True)
        _, found = np.unique(store.document_of(start, stop), return_inverse=True)
        assert found.tolist() == expected.tolist()
    if documents:
        chosen = data.draw(st.lists(st.integers(0, len(documents) - 1), max_size=5))
        wanted = np.array(chosen, np.int64)
        assert [each.tolist() for each in store.documents(wanted)] == [documents[c] for c in chosen]
        assert [store.document(c).tolist() for c in chosen] == [documents[c] for c in chosen]
        assert store.lengths(wanted).tolist() == [len(documents[c]) for c in chosen]


def test_a_part_of_a_document_can_be_read(tmp_path: Path):
    store = TokenStore([write(tmp_path, "a.ds", [[9], [1, 2, 3, 4]])])
    assert store.document(1, 1, 3).tolist() == [2, 3]


def test_a_slice_finds_its_documents_without_a_copy_of_the_index(tmp_path: Path):
    writer, ones = TokenFileWriter(tmp_path, "a.ds", token_dtype(500)), np.ones(100_000, np.int64)
    writer.add(ones, ones)
    store = TokenStore([TokenFile(tmp_path, writer.finish())])
    store.document_of(0, 1)
    tracemalloc.start()
    found = store.document_of(500, 510)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.tolist() == list(range(10))
    assert most < 100_000


def test_nothing_has_its_name_before_it_is_whole(tmp_path: Path):
    writer = TokenFileWriter(tmp_path, "a.ds", token_dtype(500))
    writer.add(np.array([1, 2]), np.array([2]))
    assert not (tmp_path / "a.ds").exists()
    assert not (tmp_path / "a.ds.index").exists()
    writer.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ds", "a.ds.index"]


def test_a_mapped_file_does_not_travel_with_its_bytes(tmp_path: Path):
    file = write(tmp_path, "a.ds", [[1] * 10_000])
    assert file.tokens.sum() == 10_000
    assert len(pickle.dumps(file)) < 1_000
    assert pickle.loads(pickle.dumps(file)).tokens.sum() == 10_000


def test_a_file_of_another_size_is_refused(tmp_path: Path):
    file = write(tmp_path, "a.ds", [[1, 2]])
    (tmp_path / "a.ds").write_bytes(b"abc")
    with pytest.raises(DataError, match=r"a\.ds has 3 bytes where 4 are expected"):
        _ = file.tokens
    (tmp_path / "a.ds").unlink()
    with pytest.raises(DataError, match=r"a\.ds is missing where 4"):
        _ = file.tokens
