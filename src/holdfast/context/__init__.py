"""Window logic: plain functions from values to values, without a store, a clock or a network."""
