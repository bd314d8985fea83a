"""Where things are: the checkout, and the directory that everything built goes into."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""

BUILD = Path(os.environ.get("SYSTOLA_BUILD", ROOT / "build")).resolve()
"""The only directory that a verb writes to, beside what the user names."""
