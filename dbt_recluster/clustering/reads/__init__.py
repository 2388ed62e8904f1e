"""The reads of a table: declared by its model, or recorded with it."""
