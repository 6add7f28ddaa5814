"""Exercise 16: beam search."""
