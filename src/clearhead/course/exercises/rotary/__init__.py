"""Exercise 10: rotary positions."""
