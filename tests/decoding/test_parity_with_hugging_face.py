"""Greedy and beam 4 write what transformers' `generate` writes: exported models, 200
prompts each (60 at each push).

The rule that differs: theirs keeps its scores in fp32 whatever the model, so scores agree to that.
"""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from clearhead.config import BeamConfig, DecodeConfig, ModelConfig
from clearhead.decoding import Output, beam_search, greedy

pytest.importorskip("transformers", reason="needs the extra hf")

from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.model_folder import TokenIds, save_model
from clearhead.models import CausalLM, Model
from tests.drawing import draws, random_model
from tests.interop.hugging import open_theirs, padded_tokens
from tests.interop.test_parity import OURS, SIZES, attentive

N_PROMPTS, MAX_NEW, WIDTH = draws(60, nightly=200), 10, 4
FAMILIES = ["gpt2", "llama", "marian", "pegasus"]


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request, tmp_path_factory: pytest.TempPathFactory):
    """Our model, theirs, and prompts."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    config = ModelConfig(**SIZES, **OURS[request.param])
    assert config.pad_id is not None
    ours = attentive(random_model(config, dtype=torch.float32), config.pad_id)
    lengths = [1 + i % 9 for i in range(N_PROMPTS)]
    left = isinstance(ours, CausalLM)
    prompts, real = padded_tokens(config.vocab_size, config.pad_id, lengths, seed=5, left=left)
    free = greedy(ours, prompts, DecodeConfig(max_new=MAX_NEW, eos_id=None, start_id=7))
    eos = a_common_token(free, config.pad_id)
    save_model(ours, folder / "ours", ids=TokenIds(bos=5, decoder_start=7, eos=eos))
    export_model(folder / "ours", folder / "theirs", check=False)
    return ours, open_theirs(folder / "theirs"), prompts, real, eos


def a_common_token(texts: list[Output], pad_id: int) -> int:
    """One that about half of the texts hold: so some texts end, and some do not."""
    counts = {t: sum(t in text.tokens for text in texts) for t in range(53) if t != pad_id}
    return min(counts, key=lambda t: abs(counts[t] - len(texts) / 2))


def their_texts(written: Tensor, ours: Model, n_prompt: int, eos: int) -> list[list[int]]:
    first = n_prompt if isinstance(ours, CausalLM) else 1
    rows = [row[first:] for row in written.tolist()]
    return [row[: row.index(eos) + 1] if eos in row else row[:MAX_NEW] for row in rows]


def test_greedy_writes_the_same_tokens_with_the_same_scores(pair):
    ours, theirs, prompts, real, eos = pair
    config = DecodeConfig(max_new=MAX_NEW, eos_id=eos, start_id=7)
    mine = greedy(ours, prompts, config)
    written = theirs.generate(
        prompts, attention_mask=real.long(), max_new_tokens=MAX_NEW, do_sample=False, num_beams=1,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    expected = their_texts(written.sequences, ours, prompts.shape[1], eos)
    assert [output.tokens for output in mine] == expected
    assert 0.1 < sum(output.stop == "end" for output in mine) / N_PROMPTS < 0.9
    log_probs = torch.stack(written.scores, dim=1).log_softmax(-1)
    for row, output in enumerate(mine):
        theirs_of = [float(log_probs[row, i, token]) for i, token in enumerate(output.tokens)]
        assert output.log_probs == pytest.approx(theirs_of, abs=2e-4)


@pytest.mark.parametrize(("stopping", "patience"), [(True, 1.0), ("never", None)])
@pytest.mark.parametrize("alpha", [1.0, 0.0])
def test_beam_4_finds_the_same_texts_with_the_same_scores(pair, stopping, patience, alpha):
    """Their early_stopping=True is patience 1; their "never" is no patience, and all of the n best
    are sure."""
    ours, theirs, prompts, real, eos = pair
    config = DecodeConfig(max_new=MAX_NEW, eos_id=eos, start_id=7)
    beam = BeamConfig(width=WIDTH, n_best=WIDTH, alpha=alpha, patience=patience)
    mine = beam_search(ours, prompts, config, beam, max_sentences=100)
    written = theirs.generate(
        prompts, attention_mask=real.long(), max_new_tokens=MAX_NEW, do_sample=False,
        num_beams=WIDTH, num_return_sequences=WIDTH, length_penalty=alpha,
        early_stopping=stopping, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    expected = their_texts(written.sequences, ours, prompts.shape[1], eos)
    scores = written.sequences_scores.view(N_PROMPTS, WIDTH)
    differing = [
        row
        for row, texts in enumerate(mine)
        if [text.tokens for text in texts] != expected[row * WIDTH : (row + 1) * WIDTH]
    ]
    for row in range(N_PROMPTS):
        got = [text.score for text in mine[row]]
        # Also where the texts differ: by rounding in fp32, two scores have changed places.
        assert got == pytest.approx(scores[row].tolist(), abs=2e-4), row
    assert len(differing) <= 2, differing
