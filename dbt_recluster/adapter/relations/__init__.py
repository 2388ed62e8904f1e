"""Relations: their names, catalogs, columns and clustering, and how tables are replaced."""
