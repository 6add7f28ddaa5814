"""Exercise 9: byte-pair merges."""
