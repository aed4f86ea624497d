"""`python -m headspan` is the `headspan` command."""

from headspan.cli.main import main

main()
