"""One local process for all ways in: a proxy for model requests, and calls for plugins. Needs the extra `server`."""
