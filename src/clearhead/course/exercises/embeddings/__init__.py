"""Exercise 14: embeddings, tying and initial weights."""
