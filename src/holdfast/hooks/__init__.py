"""Hosts: what is installed into other agents, and how their hook events are answered."""
