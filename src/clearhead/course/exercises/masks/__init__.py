"""Exercise 2: masks."""
