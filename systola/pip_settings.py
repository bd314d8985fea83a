"""Translation of pip's settings into options of uv, which does not read them."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

ONE_VALUE = {"index-url": "--index-url"}
SEVERAL_VALUES = {
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "constraint": "--constraint",
    "trusted-host": "--allow-insecure-host",
}
SWITCHES = {"no-index": "--no-index"}
VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "proxy": "ALL_PROXY",
}
WITHOUT_EFFECT = {
    "break-system-packages", "cache-dir", "compile", "disable-pip-version-check", "no-cache-dir",
    "no-color", "no-compile", "no-input", "no-warn-script-location", "prefer-binary",
    "progress-bar", "quiet", "require-virtualenv", "retries", "root-user-action", "user", "verbose",
}  # fmt: skip
"""Settings of pip that do not affect the selection of packages, or that the set-up overrides."""

SECTIONS = ("global", "install", ":env:")
"""Sections that concern an installation; the later ones override the earlier ones."""


@dataclass(frozen=True, kw_only=True)
class UvSettings:
    """Options and environment variables of ``uv pip install``."""

    options: list[str]
    variables: Mapping[str, str]


def uv_settings(listed: str) -> UvSettings | None:
    """Translate the output of ``pip config list``.

    Parameters
    ----------
    listed : str
        Lines of the form ``global.index-url='https://...'``.

    Returns
    -------
    UvSettings or None
        None if pip has a setting without a known equivalent; only pip may then install.
    """
    # As in pip, all indexes have equal priority, and the newest compatible version is installed.
    options = ["--index-strategy", "unsafe-best-match"]
    variables = {}
    for name, value in _effective(listed).items():
        words = value.split()
        if name in ONE_VALUE and len(words) == 1:
            options += [ONE_VALUE[name], *words]
        elif name in SEVERAL_VALUES:
            for word in filter(_exists, words):
                options += [SEVERAL_VALUES[name], word]
        elif name in SWITCHES and value in ("0", "1", "false", "true"):
            options += [SWITCHES[name]] if value in ("1", "true") else []
        elif name in VARIABLES:
            variables[VARIABLES[name]] = value
        elif name not in WITHOUT_EFFECT:
            return None
    return UvSettings(options=options, variables=variables)


def _effective(listed: str) -> dict[str, str]:
    """Return the settings that apply to an installation."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listed.splitlines():
        match = re.fullmatch(r"(:env:|\w+)\.([\w-]+)=('.*'|\".*\")", line)
        if match and match[1] in found:
            found[match[1]][match[2]] = ast.literal_eval(match[3])
    return {name: value for section in SECTIONS for name, value in found[section].items()}


def _exists(place: str) -> bool:
    """Report whether a place is remote, or a path that exists; pip ignores other paths."""
    parts = urlsplit(place)
    if parts.scheme not in ("", "file"):
        return True
    return Path(url2pathname(parts.path) if parts.scheme else place).exists()
