"""Exercise 6: layer normalisation and the residual connection."""
