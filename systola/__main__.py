"""`python -m systola`: the verbs behind the Makefile."""

import sys

from systola.environment import keep_inside_checkout

if __name__ == "__main__":
    keep_inside_checkout()
    from systola.cli import main

    sys.exit(main())
