"""Exercise 11: grouped queries."""
