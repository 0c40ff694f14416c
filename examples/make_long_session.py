"""Write the long session that `holdfast demo` replays: python examples/make_long_session.py FILE."""

import sys
from pathlib import Path

from holdfast.cli.story import write

if __name__ == "__main__":
    try:
        (file,) = sys.argv[1:]
    except ValueError:
        sys.exit("usage: make_long_session.py FILE")
    write(Path(file))
