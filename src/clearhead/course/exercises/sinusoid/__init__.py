"""Exercise 5: sinusoidal positions."""
