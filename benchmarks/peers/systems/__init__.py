"""One module for each memory system. They run in the environments of the systems, and import nothing of each other."""
