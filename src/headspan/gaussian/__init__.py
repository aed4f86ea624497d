"""Gaussians: information, sequences, scores x^T C y, random matrices; pure torch, batched, knows no model."""
