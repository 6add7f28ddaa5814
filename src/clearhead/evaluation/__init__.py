"""Measures how good a model is: translation scores, and perplexity that is comparable across
tokenizers."""
