"""The inspector: web pages that show what was sent, what left, what came back and why."""
