"""Mutants of torch only: they break what the reference engine lacks, or torch's private parts."""
