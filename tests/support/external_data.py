"""Where the public benchmark data and real transcripts lie, for those who have them."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the public data sets are not at {SHARED}")
