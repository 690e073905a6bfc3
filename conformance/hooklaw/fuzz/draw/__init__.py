"""Drawing random programs."""
