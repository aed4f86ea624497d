"""Arguments to calls. Nothing here computes, and nothing heavy is imported before a command needs it."""
