"""Speed and memory, measured as ratios within one process or of one process to another. Run with `make bench`."""
