"""The benchmark of offload strategies: what each costs in time, and what memory it saves.

Only what runs inside a worker imports torch (`visit` and what it imports); everything else reads plain cells.
"""
