"""Exercise 17: gradient accumulation."""
