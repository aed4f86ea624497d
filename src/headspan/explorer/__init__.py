"""Lenses, findings and figures to one offline HTML file."""
