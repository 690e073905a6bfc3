"""What a rule is: its registry, its trace, and the settings Hypothesis searches with."""
