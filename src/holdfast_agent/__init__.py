"""The agent of `holdfast chat`: a host of the engine, with its loop, tools, sessions, commands and terminal."""
