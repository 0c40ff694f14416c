"""Memory for SDKs and agent frameworks, one module for each. Each needs the extra of its name.

Where memory fails, a request is sent as it came, and the log `holdfast.adapters` says why.
"""
