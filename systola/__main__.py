"""`python -m systola`: the command line; the Makefile and the script `systola` call it too."""

from systola.start import start

if __name__ == "__main__":
    start()
