"""What is judged: one file a backend. A factory takes the argument of ``NAME:ARG`` and returns the backend."""
