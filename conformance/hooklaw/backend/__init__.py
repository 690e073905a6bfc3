"""What a rule may ask of a backend: verbs, capabilities, and loading a backend by name."""
