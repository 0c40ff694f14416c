"""Holdfast keeps long-running LLM agents inside their context window without losing anything."""

__version__ = "0.1.0"
