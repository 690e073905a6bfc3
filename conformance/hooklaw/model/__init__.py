"""The reference engine: the law as a small autograd in plain Python. `hooklaw docs the-engine` says how to read it."""
