"""The window, decided: plain functions from values to values. No store, no clock, no network."""
