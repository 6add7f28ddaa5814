"""Exercise 13: sampling."""
