"""Exercise 3: heads are split and merged."""
