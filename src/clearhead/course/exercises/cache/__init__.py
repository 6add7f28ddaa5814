"""Exercise 15: the cache."""
