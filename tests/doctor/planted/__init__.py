"""Small Transformers with one silent bug each, and the same models without it."""
