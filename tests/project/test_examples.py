"""The Dockerfile and the Compose file, as far as they can be checked without a container runtime."""

import json
import re
import tomllib

from holdfast.cli.serve import serve
from support.paths import ROOT

FOLDER = ROOT / "examples" / "postgres"


def test_no_example_installs_holdfast_from_an_index() -> None:
    """The name on PyPI belongs to another project."""
    for file in (ROOT / "examples").rglob("*"):
        if file.is_file():
            assert not re.search(r"pip install\b[^\n]*[\s'\"]holdfast\b", file.read_text("utf-8")), file


def test_the_image_is_made_of_files_of_the_checkout() -> None:
    """All that the Dockerfile copies is sent to Docker, and nothing else; its extras exist."""
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    copied = {name for names in re.findall(r"(?m)^COPY (?!--)(.+) \S+$", dockerfile) for name in names.split()}
    sent = re.findall(r"(?m)^!(\S+)$", (ROOT / ".dockerignore").read_text("utf-8"))
    assert copied == set(sent)
    assert all((ROOT / name).exists() for name in copied)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"/src\[(.+)\]", dockerfile)[0].split(",")) <= set(extras)


def test_the_image_runs_as_a_user_and_checks_its_server() -> None:
    """The last stage has a user of its own, a health check that is a command, and the server as its command."""
    last = (ROOT / "Dockerfile").read_text("utf-8").rpartition("\nFROM ")[2]
    assert re.findall(r"(?m)^USER (\S+)$", last) == ["holdfast"]
    (check,) = re.findall(r"(?m)^HEALTHCHECK .*CMD (\[.+\])$", last)
    program, *arguments = json.loads(check)
    assert program == "holdfast"
    serve.make_context("serve", arguments[1:])
    assert '"serve"' in last.rpartition("CMD")[2]


def test_the_login_is_no_superuser_and_ports_are_of_this_machine() -> None:
    """Holdfast logs in as a role of its own, with a password from the environment."""
    compose = (FOLDER / "compose.yaml").read_text("utf-8")
    (login,) = re.findall(r"postgresql://(\w+)@127\.0\.0\.1/", compose)
    assert f"CREATE ROLE {login} LOGIN PASSWORD :'password';" in compose
    assert re.findall(r'"([\d.]*):?\d+:\d+"', compose) == ["127.0.0.1"]
    assert re.findall(r"PASSWORD: (.)", compose) == ["$", "$"]
