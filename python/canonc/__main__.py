"""`python -m canonc` is the command `canonc`."""

from ._launch import main

main()
