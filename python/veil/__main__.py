"""python -m veil: the same as the command veil."""

from veil import main

main()
