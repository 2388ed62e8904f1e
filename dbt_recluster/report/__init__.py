"""How it looks: lines and tables for people."""
