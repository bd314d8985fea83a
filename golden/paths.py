"""Where the golden models find the checkout and keep what they generate."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""Root of the checkout."""

BUILD = Path(os.environ.get("SYSTOLA_BUILD", ROOT / "build")).resolve()
"""Folder for everything generated; the environment variable ``SYSTOLA_BUILD`` moves it."""
