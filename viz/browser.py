"""The Chromium of this machine, for the tools that draw with it: pictures, handouts, measurements, and the browser tests."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """The program named in the variable ``CHROMIUM``, else the first that is installed under a usual name, else ``None``."""
    return os.environ.get("CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)
