"""Where the project's folders are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
DATA: Final = ROOT / "tests" / "data"
"""Bytes that were captured from stock brokers and clients."""
