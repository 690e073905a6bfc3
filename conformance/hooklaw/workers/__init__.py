"""Running code that may crash or hang."""
