"""Starts the program that this package contains (bin/veil), with the arguments it was given."""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "veil")
    os.execv(program, [program, *sys.argv[1:]])
