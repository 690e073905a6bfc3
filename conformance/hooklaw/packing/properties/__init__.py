"""The properties, one module for each family. The text of a property's body is what runs and what users see."""
