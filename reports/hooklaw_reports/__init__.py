"""What was found: reads records only."""
