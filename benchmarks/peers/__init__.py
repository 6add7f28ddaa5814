"""Compares clearhead with the tools that a user would pick instead: one core each, the same data.

__main__        which runs there are; each finished point is a line of results/peers.jsonl
environments    a virtual environment for each peer
marks           weights are kept when the processor time of a run passes a mark
in_*            what runs inside a peer's environment: train, then translate
tables          the tables of docs/*/comparison.md

The configurations are the files beside this one. `*-authors` has what the peer's authors publish,
`*-ours` the hyper-parameters of our recipe.
"""
