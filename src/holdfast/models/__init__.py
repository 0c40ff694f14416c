"""Language models: one protocol, the vendors' own SDKs behind it."""
