"""What predicates, queries and logged scans ask of columns."""
