"""Random hook programs, run on the reference engine and on a backend, and what to make of a difference."""
