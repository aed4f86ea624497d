"""Heads, or a running model, to labeled results: one folder per lens."""
