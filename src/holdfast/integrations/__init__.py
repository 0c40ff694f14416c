"""Files that are installed into other programs."""
