"""How a plan selects block sets."""
