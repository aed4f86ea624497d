"""Training small models and watching their subspaces form."""
