"""Exercise 20: your own Transformer."""
