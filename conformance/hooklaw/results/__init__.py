"""What came of a run: records, verdicts, expectations, and their summary."""
