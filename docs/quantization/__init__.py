"""What `docs/quantization.md` is made of: schemes that round weights, and what headspan says of the rounded models."""
