"""Mutants of torch alone: their vice is in what the reference engine lacks, or in torch's own insides."""
