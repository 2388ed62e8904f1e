"""What an operation is, and the options of models. It knows no dbt."""
