"""The search index: posting lists, columns and vectors in tables of a database. `Index.search` is its only door."""
