"""The terminal agent: its loop, its tools, its sessions, its commands."""
