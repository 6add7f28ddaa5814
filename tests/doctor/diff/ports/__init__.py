"""Ports of models of transformers, as people write them."""
