"""The properties, a module a family; the body of each is the very text that runs and that is shown."""
