"""The page's search, in Node, finds what Python's decoder finds when both are given the same
logits."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.config import BeamConfig, Choice, DecodeConfig
from clearhead.decoding import beam_search, greedy, sample
from clearhead.decoding.sampling import probabilities
from clearhead.inspection.beam_tree import BeamTree
from clearhead.models import CausalLM
from clearhead.web import exporting
from tests.inspection.subjects import subject

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")
PAGE = Path(exporting.__file__).parent / "page_files"
Ask = Callable[..., Any]
PROMPT = [5, 9, 30]
LIMIT, END = 7, 2


@pytest.fixture(scope="module")
def model() -> CausalLM:
    found = subject("decoder").model
    assert isinstance(found, CausalLM)
    return found


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory, model: CausalLM) -> Iterator[Ask]:
    folder = tmp_path_factory.mktemp("search")
    shutil.copytree(PAGE, folder / "page")
    shutil.copy(Path(__file__).parent / "asking.mjs", folder)
    (folder / "package.json").write_text('{"type": "module"}')
    assert NODE is not None
    process = subprocess.Popen(
        [NODE, "asking.mjs"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    to, back = process.stdin, process.stdout

    def write(value: Any) -> None:
        to.write(json.dumps(value) + "\n")
        to.flush()

    def answer(**question: Any) -> Any:
        write(question)
        while True:
            said = json.loads(back.readline())
            if "found" in said:
                return said["found"]
            tokens = torch.tensor([PROMPT + said["next"]])
            with torch.no_grad():
                write(model(tokens, real="all")[0, -1].tolist())

    yield answer
    write({"what": "end"})
    assert process.wait(timeout=60) == 0


def end_of(model: CausalLM) -> list[int]:
    """Ends that this model reaches at once, soon, and never: the likeliest tokens, and none."""
    with torch.no_grad():
        best = model(torch.tensor([PROMPT]), real="all")[0, -1].topk(6).indices
    return [END, *best.tolist()]


def test_greedy_finds_pythons_text(ask: Ask, model: CausalLM):
    for end in end_of(model):
        config = DecodeConfig(max_new=LIMIT, eos_id=end, window="stop")
        found = ask(what="greedy", limits={"limit": LIMIT, "end": end})
        assert found == greedy(model, [PROMPT], config)[0].tokens


@pytest.mark.parametrize("width", [2, 3, 4, 8])
def test_a_beam_grows_pythons_tree(ask: Ask, model: CausalLM, width: int):
    for end in end_of(model):
        config = DecodeConfig(max_new=LIMIT, eos_id=end, window="stop")
        tree = BeamTree(BeamConfig(width=width))
        ((best,),) = beam_search(model, [PROMPT], config, tree.beam, watch=tree)
        tree.mark(best)
        found = ask(what="beam", limits={"limit": LIMIT, "end": end}, width=width)
        assert found["tokens"] == best.tokens
        assert len(found["nodes"]) == len(tree.nodes) > width
        for mine, node in zip(found["nodes"], tree.nodes, strict=True):
            assert mine.keys() == node.keys()
            for key, value in node.items():
                assert mine[key] == (
                    pytest.approx(value, abs=1e-4) if isinstance(value, float) else value
                )


@pytest.mark.parametrize("seed", [0, 1, 7, 2**40 + 1])
def test_the_same_seed_draws_pythons_text(ask: Ask, model: CausalLM, seed: int):
    config = DecodeConfig(max_new=LIMIT, eos_id=END, window="stop")
    for choice in (
        Choice(temperature=1.0),
        Choice(temperature=1.7, top_k=5),
        Choice(temperature=0.8, top_p=0.7),
        Choice(temperature=1.2, min_p=0.1),
        Choice(temperature=1.5, top_k=20, top_p=0.9, min_p=0.05),
    ):
        found = ask(
            what="draw", limits={"limit": LIMIT, "end": END}, choice=named(choice), seed=seed
        )
        assert found == sample(model, [PROMPT], config, choice, seed=[seed])[0].tokens


def test_chances_are_pythons_where_tokens_are_equally_likely(ask: Ask):
    logits = [1.0, 3.0, 3.0, 2.0, 2.0, 2.0, -1.0, 0.5]
    for choice in (
        Choice(temperature=0.3),
        Choice(top_k=1),
        Choice(top_k=4),
        Choice(top_p=0.35),
        Choice(top_p=0.6),
        Choice(min_p=0.4),
        Choice(temperature=2.0, top_k=6, top_p=0.8, min_p=0.5),
    ):
        expected = probabilities(torch.tensor([logits]), choice, None)[0].tolist()
        found = ask(what="chances", logits=logits, choice=named(choice))
        assert found == pytest.approx(expected, abs=1e-12)


def named(choice: Choice) -> dict[str, Any]:
    return {
        "temperature": choice.temperature,
        "topK": choice.top_k,
        "topP": choice.top_p,
        "minP": choice.min_p,
    }
