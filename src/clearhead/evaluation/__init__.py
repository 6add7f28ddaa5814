"""How good a model is: translation scores, and perplexity that compares across tokenizers."""
