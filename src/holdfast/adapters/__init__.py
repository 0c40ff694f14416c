"""Memory for SDKs and agent frameworks, one module for each.

Each needs the extra of its name. If memory fails, a request is sent unchanged, and the logger `holdfast.adapters` logs
why.
"""
