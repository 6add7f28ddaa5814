"""Records a beam search as a tree, from the steps that the search reports."""

from typing import Any

from clearhead.config import BeamConfig
from clearhead.decoding import BeamStep, Output
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.visible import label_of


class BeamTree:
    """A watcher for `beam_search(watch=…)`. Every ranked continuation becomes a node under the
    hypothesis that it continues, and is marked as kept, finished or dropped."""

    def __init__(self, beam: BeamConfig) -> None:
        self.beam = beam
        self.nodes: list[dict[str, Any]] = [
            {"id": 0, "parent": None, "token": None, "log_prob": 0.0, "total": 0.0, "fate": "kept"}
        ]
        self._at: dict[int, int] = {}
        """Slot → node, of the hypotheses that the next step continues."""

    def __call__(self, step: BeamStep) -> None:
        now: dict[int, int] = {}
        for branch in step.branches:
            number = len(self.nodes)
            node: dict[str, Any] = {
                "id": number,
                "parent": self._at.get(branch.parent, 0),
                "token": branch.token,
                "log_prob": branch.log_prob,
                "total": branch.total,
                "fate": branch.fate,
            }
            if branch.fate == "finished":
                node["divisor"] = self.beam.normaliser(step.length)
                node["score"] = branch.total / node["divisor"]
            if branch.slot is not None:
                now[branch.slot] = number
            self.nodes.append(node)
        self._at = now

    @property
    def tokens(self) -> list[int]:
        """Return the tokens of all nodes."""
        return [node["token"] for node in self.nodes if node["token"] is not None]

    def mark(self, best: Output) -> None:
        """Mark the path of the text that was returned first."""
        node = 0
        for token in best.tokens:
            children = [n for n in self.nodes if n["parent"] == node and n["token"] == token]
            if not children:
                return
            chosen = max(children, key=lambda n: (n["fate"] != "dropped", n["total"]))
            chosen["best"] = True
            node = chosen["id"]
        self.nodes[0]["best"] = True

    def document(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Return the document that the page reads, with the text of each token."""
        best = [n["token"] for n in self.nodes if n.get("best") and n["token"] is not None]
        nodes = [
            {**node, "text": "" if node["token"] is None else label_of(node["token"], tokenizer)}
            for node in self.nodes
        ]
        return {"width": self.beam.width, "nodes": nodes, "best_text": tokenizer.decode(best)}
