"""Exercise 19: repair the specimen."""
