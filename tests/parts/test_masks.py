"""Masks say who may look at whom."""

import torch

from clearhead.parts import masks


def test_the_causal_mask_is_lower_triangular_and_aligned_to_the_bottom_right():
    assert masks.causal(2, 4)[0, 0].tolist() == [[True, True, True, False], [True] * 4]
    assert torch.equal(masks.causal(3, 3)[0, 0], torch.ones(3, 3).tril().bool())


def test_masks_combine_with_and_and_none_allows_everything():
    a, b = torch.tensor([True, False]), torch.tensor([True, True])
    assert masks.both(None, None) is None
    assert masks.both(a, None) is a
    assert masks.both(None, b) is b
    assert torch.equal(masks.both(a, b), a & b)


def test_positions_count_from_the_first_real_token():
    real = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    assert masks.count_positions(real).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2]]


def test_documents_count_their_own_positions_and_do_not_see_each_other():
    documents = torch.tensor([[7, 7, 7, 8, 8, 3]])
    assert masks.count_document_positions(documents).tolist() == [[0, 1, 2, 0, 1, 0]]
    allowed = masks.same_document(documents)[0, 0]
    assert allowed[0].tolist() == [True, True, True, False, False, False]
    assert torch.equal(allowed, allowed.T)
