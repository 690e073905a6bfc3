"""Rules on backends: one rule becomes one result, a session becomes one run."""
