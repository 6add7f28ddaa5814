"""Exercise 12: one step of AdamW."""
