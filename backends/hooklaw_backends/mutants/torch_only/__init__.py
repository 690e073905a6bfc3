"""Mutants of torch alone: their vice needs what the reference engine lacks, or torch's own insides."""
