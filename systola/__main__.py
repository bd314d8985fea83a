"""`python -m systola`: the command line, which the Makefile and the script `systola` also call."""

from systola.start import start

if __name__ == "__main__":
    start()
