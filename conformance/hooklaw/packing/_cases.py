"""Cases that several properties share: strategies of Python expressions."""

from hypothesis import strategies as st


def _leaf(sizes: list[int], how: str) -> str:
    shape = "".join(f"{size}, " for size in sizes)
    return f"numbers({shape}device=device){how}.requires_grad_()"


LEAVES = {
    "x": st.builds(
        _leaf,
        st.lists(st.integers(1, 3), min_size=1, max_size=3),
        st.sampled_from(["", ".double()", ".mul(3)", ".flip(0)"]),
    )
}
"""Leaves of several shapes and dtypes."""
