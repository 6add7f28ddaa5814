"""Exercise 18: find the induction head."""
