"""One table: its blocks, metrics, rounds of reclustering and maintenance. Knows no dbt."""
