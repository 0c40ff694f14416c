"""Compaction: history becomes a summary, and nothing is lost by it."""
