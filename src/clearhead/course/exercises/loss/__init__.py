"""Exercise 8: the shift and the loss."""
