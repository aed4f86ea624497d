"""In transit."""
