"""`python -m wakeful.cli`."""

from . import main

main()
