"""The files of the memory provider for Hermes Agent."""
