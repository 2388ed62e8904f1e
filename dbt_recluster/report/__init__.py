"""How results look: text, figures and HTML."""
