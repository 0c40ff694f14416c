"""Nothing outside the workspace is read or written, for any name and any workspace."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast_agent.paths import Bounds, append_bytes, read_bytes, write_bytes
from support.strategies import examples

SECRET = b"the secret outside"

PARTS = st.sampled_from(
    [
        "..",
        ".",
        "",
        "a",
        "b",
        "A",
        "link",
        "up",
        "LINK",
        "secret",
        "SECRET",
        "~",
        "ws",
        "outside",
        "．．",
        "a\\..",
        "...",
        "%2e%2e",
    ]
)
NAMES = st.builds(
    lambda start, parts, end: start + "/".join(parts) + end,
    st.sampled_from(["", "/", "./", "//", "@/", "@@/"]),
    st.lists(PARTS, min_size=1, max_size=7),
    st.sampled_from(["", "/", "/.", " "]),
)
TARGETS = st.sampled_from(["..", ".", "a", "../outside", "../outside/secret", "/", "link", "up/..", "b/../.."])


def world(folder: Path, links: dict[str, str]) -> Bounds:
    """Make a workspace with links that lead anywhere, and a secret outside it."""
    (folder / "outside").mkdir()
    (folder / "outside" / "secret").write_bytes(SECRET)
    (folder / "secret").write_bytes(SECRET)
    root = folder / "ws"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        (root / name / "secret").write_bytes(b"inside")
    for name, target in links.items():
        place = root / name
        if not place.exists() and not place.is_symlink():
            place.symlink_to(target)
    return Bounds(root=root)


def spelled(name: str, folder: Path) -> str:
    """Return a path in which `@` is the folder around the workspace, and `@@` the workspace."""
    return name.replace("@@", str(folder / "ws"), 1).replace("@", str(folder), 1)


def outside(folder: Path) -> dict[str, bytes]:
    """Return every file outside the workspace."""
    places = [place for place in folder.rglob("*") if place.is_file() and not place.is_symlink()]
    return {str(place): place.read_bytes() for place in places if folder / "ws" not in place.parents}


@settings(max_examples=examples(60))
@given(
    names=st.lists(NAMES, min_size=1, max_size=8),
    links=st.dictionaries(st.sampled_from(["link", "up", "a/link", "b/up"]), TARGETS, max_size=4),
)
def test_nothing_outside_is_read_or_written(names: list[str], links: dict[str, str]) -> None:
    """Reading shows no secret; writing and appending change, create and remove nothing outside."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        bounds = world(folder, links)
        before = outside(folder)
        for name in (spelled(name, folder) for name in names):
            for use in (read_bytes, lambda b, n: write_bytes(b, n, b"x"), lambda b, n: append_bytes(b, n, b"y")):
                try:
                    found = use(bounds, name)
                except InputError:
                    continue
                assert found != SECRET
                assert isinstance(found, bytes) or found.is_relative_to(bounds.root)
        assert outside(folder) == before
