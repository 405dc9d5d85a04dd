"""What the commands do; `card.cli` only reads their arguments."""
