"""Advice before a decision: imported reads, costs and benefits, the overview, suggested keys."""
