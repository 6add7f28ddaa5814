"""Exercise 4: cross-attention with many heads."""
