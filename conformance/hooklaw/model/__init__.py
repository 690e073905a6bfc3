"""The law as a small autograd engine in plain Python, written to be read; docs/the-engine.md says in which order."""
