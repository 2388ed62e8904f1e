"""What a user can ask for: every operation and every option of a model, declared once. It knows no dbt."""
