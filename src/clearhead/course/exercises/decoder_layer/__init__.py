"""Exercise 7: a decoder layer."""
