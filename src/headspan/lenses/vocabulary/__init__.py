"""What heads and neurons read and write, in tokens."""
