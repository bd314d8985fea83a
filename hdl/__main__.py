"""`python -m hdl`: the verbs behind the Makefile."""

import sys

from hdl.environment import keep_inside_checkout

if __name__ == "__main__":
    keep_inside_checkout()
    from hdl.cli import main

    sys.exit(main())
