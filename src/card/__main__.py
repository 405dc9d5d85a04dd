"""`python -m card` is the command `card`."""

from card.cli import main

main()
