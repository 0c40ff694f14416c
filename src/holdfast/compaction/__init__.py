"""Compaction: replace older history by a summary. The archive keeps every message."""
