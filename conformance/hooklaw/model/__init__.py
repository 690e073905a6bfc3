"""The reference engine: the law as a small autograd in plain Python. docs/the-engine.md says how to read it."""
