"""The benchmark of offload strategies: what each costs in time, and what it spares in memory.

Workers measure (`trial` and what it imports know torch), everything else reads plain cells.
"""
