"""Files of hosts, through an installation and a removal: byte for byte, whatever they look like."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import json5
import pytest
import yaml

from holdfast.errors import InputError
from holdfast.hooks import hosts
from holdfast.hooks.install import Installer

COMMAND = ("/opt/holdfast/bin/python", "-E", "-m", "holdfast")
MOVED = ("/srv/other place/bin/python", "-E", "-m", "holdfast")
BOM = b"\xef\xbb\xbf"

USER_COMMENTS = (
    b"// keep this",
    b"// mine",
    b"# a comment",
    b"// the end",
    b"# the first",
    b"// it's mine",
    b"// theirs",
)
COMMENTS = b"""{
  // the model, \xe7\x94\xa8\xe6\x9d\xa5\xe7\xbc\x96\xe7\xa8\x8b
  "model": "m1", // keep this
  /* a block
     of two lines */
  "url": "http://example.org/a//b" // not a comment inside
  // the end
}
"""
JSON_SHAPES: dict[str, bytes | None] = {
    "absent": None,
    "empty": b"",
    "blank": b"\n  \n",
    "an empty object": b"{}",
    "an empty object over lines": b"{\n}\n",
    "other settings": b'{\n  "theme": "dark",\n  "list": [1, 2, {"a": null}]\n}\n',
    "one line": b'{"theme": "dark", "n": 1.50}',
    "comments": COMMENTS,
    "only a comment inside": b"{\n  // nothing yet\n}\n",
    "trailing commas": b'{\n  "a": [1, 2,],\n  "b": {"c": 1,},\n}\n',
    "single quotes and bare keys": b"{\n  theme: 'dark', // it's mine\n  n: +.5,\n}",
    "byte order mark": BOM + b'{\n  "theme": "dark"\n}\n',
    "line ends of Windows": b'{\r\n    "theme": "dark", // x\r\n    "a": {}\r\n}\r\n',
    "tabs": b'{\n\t"theme": "dark",\n\t"a": {\n\t\t"b": 1\n\t}\n}\n',
    "bracket on the last line": b'{\n  "theme": "dark" }',
    "no line end": b'{\n  "theme": "dark"\n}',
    "escapes": '{\n  "名前": "\\u4e2d \\"x\\" // no",\n  "emoji": "🗝"\n}\n'.encode(),
}
USED: dict[str, dict[str, bytes]] = {
    "codex": {
        "hooks of the user": b'{\n  "hooks": {\n    // mine\n    "Stop": [ { "hooks": [{"type": "x"}] } ]\n  }\n}\n',
        "an empty object for hooks": b'{"hooks": {}}',
    },
    "gemini": {
        "a server of the user": b'{\n  "mcpServers": {\n    "mine": {"command": "x"}, // theirs\n  },\n}\n',
        "another server of the same name": b'{\n  "mcpServers": {\n    "holdfast": {"a": 1 /* old */ }\n  }\n}\n',
        "hooks of the user": b'{"hooks": {"SessionStart": [{"hooks": [{"command": "beep"}]}], "Other": []}}',
    },
    "qwen": {"an empty list": b'{\n  "hooks": {\n    "Stop": [ ]\n  },\n  "mcpServers": { }\n}\n'},
    "openclaw": {
        "plugins of the user": b"{\n  plugins: {\n    allow: ['other'], // mine\n    slots: { contextEngine: 'x' },\n"
        b"    entries: { another: { enabled: true, } },\n  },\n}\n",
        "on the list already": b'{\n  "plugins": {\n    "allow": ["holdfast", "other"]\n  }\n}\n',
    },
    "opencode": {"a server of the user": b'{\n  "mcp": {\n    "mine": {\n      "type": "local"\n    }\n  }\n}\n'},
}
TOML_SHAPES: dict[str, bytes | None] = {
    "absent": None,
    "empty": b"",
    "comments": b'# mine\nmodel = "m1"  # a comment\n\n[mcp_servers.other]\ncommand = "x"\n',
    "no line end": b'model = "m1"',
    "byte order mark": BOM + b'model = "m1"\n',
    "line ends of Windows": b'# mine\r\nmodel = "m1"\r\n',
}
YAML_SHAPES: dict[str, bytes | None] = {
    "absent": None,
    "empty": b"",
    "comments": b"# mine\nmodel: m1  # x\nextensions: # all\n  # the first\n  developer:\n    enabled: true\n",
    "other settings": b"GOOSE_PROVIDER: openai\n",
    "an empty object": b"a: 1\nextensions: {}\nb: 2\n",
    "deeper indentation": b"extensions:\n    developer:\n        enabled: true\nb: 2\n",
    "line ends of Windows": b"a: 1\r\nextensions:\r\n  developer:\r\n    enabled: true\r\n",
    "byte order mark": BOM + b"extensions:\n  developer: {}\n",
    "no line end": b"a: 1\nextensions:",
}
HERMES_SHAPES: dict[str, bytes | None] = {
    "absent": None,
    "another provider": b"memory:\n  memory_enabled: true\n  provider: honcho # mine\nmodel:\n  provider: custom\n",
    "no provider": b"memory:\n    memory_enabled: true\nmodel: {}\n",
    "line ends of Windows": b"memory:\r\n  provider: ''\r\n",
}
FILES = {
    "codex": "hooks.json",
    "gemini": "settings.json",
    "qwen": "settings.json",
    "openclaw": "openclaw.json",
    "opencode": "opencode.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
}
CASES = [
    *((host, file, shape, data) for host, file in FILES.items() for shape, data in JSON_SHAPES.items()),
    *((host, FILES[host], shape, data) for host, shapes in USED.items() for shape, data in shapes.items()),
    *(("codex", "config.toml", shape, data) for shape, data in TOML_SHAPES.items()),
    *(("goose", "config.yaml", shape, data) for shape, data in YAML_SHAPES.items()),
    *(("hermes", "config.yaml", shape, data) for shape, data in HERMES_SHAPES.items()),
]


class Home:
    """One file of a host, and the installer of the host."""

    def __init__(self, folder: Path, host: str, file: str, data: bytes | None) -> None:
        self.folder = folder
        self.host = host
        self.path = folder / host / file
        if data is not None:
            self.path.parent.mkdir(parents=True)
            self.path.write_bytes(data)

    def installer(self, command: tuple[str, ...] = COMMAND) -> Installer:
        installer = Installer(self.host, records=self.folder / "records", environ={}, command=command)
        installer.folder = self.folder / self.host
        return installer

    def snapshot(self) -> dict[str, bytes | None]:
        root = self.folder / self.host
        return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}

    def read(self) -> object:
        """Parse the file as the host does."""
        text = self.path.read_bytes().decode("utf-8-sig")
        if self.path.suffix == ".toml":
            return tomllib.loads(text)
        if self.path.suffix == ".yaml":
            return yaml.safe_load(text)
        return json5.loads(text)


def name_case(case: object) -> str:
    """Name a case in the list of tests."""
    return ": ".join(map(str, case[:3])) if isinstance(case, tuple) else ""


@pytest.fixture(params=CASES, ids=name_case)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """Write the file of one case."""
    host, file, _, data = request.param
    return Home(tmp_path, host, file, data)


@pytest.fixture(params=[case for case in CASES if case[0] in {"gemini", "goose", "hermes", "openclaw"}], ids=name_case)
def changing(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """Write the file of one case, of hosts that have all kinds of changes."""
    host, file, _, data = request.param
    return Home(tmp_path, host, file, data)


@pytest.mark.variants
def test_every_file_is_the_same_byte_for_byte_after_a_removal(case: Home) -> None:
    """A second installation keeps what the first has written, and all comments of the user are in both."""
    assert len(CASES) >= 32
    data = case.path.read_bytes() if case.path.exists() else b""
    before = case.snapshot()
    case.installer().install()
    once = case.snapshot()
    assert {change.action for change in case.installer().install()} == {"keep"}
    assert case.snapshot() == once
    after = case.path.read_bytes()
    assert b"holdfast" in after
    assert case.read()
    assert after.startswith(BOM) == data.startswith(BOM)
    assert (b"\r\n" in after) == (b"\r\n" in data)
    assert after.count(b"\r\n") in {0, after.count(b"\n")}
    for comment in USER_COMMENTS:
        assert after.count(comment) == data.count(comment)
    case.installer().uninstall()
    assert case.snapshot() == before


@pytest.mark.variants
def test_what_the_user_adds_later_stays(changing: Home) -> None:
    """A comment at the end of the file is all that differs after the removal."""
    data = changing.path.read_bytes() if changing.path.exists() else None
    changing.installer().install()
    comment = b"// later\n" if changing.path.suffix == ".json" else b"# later\n"
    changing.path.write_bytes(changing.path.read_bytes() + comment)
    changing.installer().uninstall()
    left = changing.path.read_bytes()
    assert left.endswith(comment)
    if data and data.strip() and data.decode("utf-8-sig").endswith("\n"):
        assert left == data + comment


@pytest.mark.variants
def test_what_the_user_adds_before_an_update_stays(changing: Home) -> None:
    """The installation has moved, so that the second one changes the file again."""
    changing.installer().install()
    comment = b"// later\n" if changing.path.suffix == ".json" else b"# later\n"
    changing.path.write_bytes(changing.path.read_bytes() + comment)
    changing.installer(MOVED).install()
    changing.installer(MOVED).uninstall()
    left = changing.path.read_bytes()
    assert comment in left
    assert b"/opt/holdfast" not in left
    assert b"/srv/other place" not in left


@pytest.mark.parametrize(
    ("host", "file", "data"),
    [
        ("gemini", "settings.json", b'{"a": '),
        ("gemini", "settings.json", b"[1]"),
        ("gemini", "settings.json", b"\xff\xfe{\x00}\x00"),
        ("gemini", "settings.json", b'{"hooks": 5}'),
        ("qwen", "settings.json", b'{"hooks": {"Stop": "x"}}'),
        ("qwen", "settings.json", b'{"mcpServers": null}'),
        ("opencode", "opencode.json", b'{"mcp": {"a": 1} "b": 2}'),
        ("openclaw", "openclaw.json", b"{plugins: [}"),
        ("codex", "config.toml", b"model = \n"),
        ("codex", "config.toml", b'[mcp_servers.holdfast]\ncommand = "mine"\n'),
        ("goose", "config.yaml", b"extensions:\n\tdeveloper: {}\n"),
        ("goose", "config.yaml", b"just a sentence\n"),
        ("goose", "config.yaml", b"extensions: {developer: {enabled: true}}\n"),
    ],
)
def test_a_file_that_cannot_be_changed_is_refused_and_left_alone(
    tmp_path: Path, host: str, file: str, data: bytes
) -> None:
    """The error names the file."""
    case = Home(tmp_path, host, file, data)
    before = case.snapshot()
    with pytest.raises(InputError, match=file):
        case.installer().install()
    assert case.snapshot() == before


def test_comments_of_a_file_that_the_host_wrote_again_come_back(tmp_path: Path) -> None:
    """Most hosts write JSON without comments."""
    case = Home(tmp_path, "gemini", "settings.json", COMMENTS)
    case.installer().install()
    case.path.write_text(json.dumps(case.read()))
    case.installer().uninstall()
    assert case.path.read_bytes() == COMMENTS


def test_the_plugin_of_openclaw_declares_every_tool_that_it_registers() -> None:
    """OpenClaw refuses a tool that the manifest of its plugin does not list."""
    folder = Path(hosts.__file__).parent / "openclaw"
    declared = json.loads((folder / "openclaw.plugin.json").read_text("utf-8"))["contracts"]["tools"]
    registered = re.findall(r'^ +name: "(archive_\w+)"', (folder / "index.js").read_text("utf-8"), re.MULTILINE)
    assert sorted(declared) == sorted(registered)
