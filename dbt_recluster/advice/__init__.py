"""What clustering a table costs, what it gains, and which key serves its queries."""
