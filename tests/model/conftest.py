"""One real model for all tests of this folder, which `make test-model` runs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from holdfast.models import open_model
from holdfast.settings import ModelSettings, Settings
from support.real_model import CONTEXT_TOKENS, RecordingModel, explain_absence, serve


@pytest.fixture(scope="session")
def model_name() -> Iterator[str]:
    """The name of a real model, as a user types it."""
    reason = explain_absence(os.environ)
    if reason:
        pytest.skip(reason)
    with serve(os.environ) as name:
        yield name


@pytest.fixture
def model(model_name: str) -> RecordingModel:
    """A real model whose requests and replies are kept."""
    settings = Settings(model=ModelSettings(context_tokens=CONTEXT_TOKENS))
    return RecordingModel(open_model(model_name, settings=settings))
