"""One module for each contender, imported only inside that contender's own environment."""
