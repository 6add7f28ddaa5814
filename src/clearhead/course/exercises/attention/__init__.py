"""Exercise 1: attention."""
