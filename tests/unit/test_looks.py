"""Phrases of what is seen: chosen so that they are the same everywhere."""

import pytest

from hooklaw.results.looks import phrase_of, shows


@pytest.mark.parametrize(
    ("detail", "phrase"),
    [
        ("raises should be graph-freed, was no error", "raises should be graph-freed, was no error"),
        ("event 2 should be 'a' with [1.0], was 'b'; saw 'a', 'b'", "should be 'a' with [1.0], was 'b'"),
        ("expected 1 events ('hook' with [3.0]), saw nothing", "expected 1 events ('hook' with [3.0]), saw nothing"),
        (f"expected 9 events ({'x' * 100}), saw 'hook' with 3", "saw 'hook' with 3"),
        ("sum raised KeyError: 'oops'", "sum raised KeyError: 'oops'"),
        ("call raised E: <Tensor at 0x7f00a1> is bad", "call raised E: <Tensor at"),
        ("call raised E: no file /home/me/x/y.py here", "call raised E: no file"),
        ("call raised E: x.cc:196 went wrong (+12 lines)", "call raised E: x.cc"),
        ("0x7f00a1 is not a tensor of this framework", "is not a tensor of this framework"),
        ("a. 0x7f b", "a"),
        ("x should be 1, was 2 [Falsifying example: f(x=1)]", "x should be 1, was 2"),
        ("call raised E: " + "word " * 40, "call raised E:" + " word" * 17),
        ("", ""),
    ],
)
def test_phrase(detail, phrase):
    """A phrase has no address, path, line or number of lines, and does not repeat the whole trace."""
    assert phrase == phrase_of(detail)
    assert shows([phrase], detail)


@pytest.mark.parametrize(
    ("phrases", "shown"), [([], True), (["raised"], True), (["other", "KeyError"], True), (["other"], False)]
)
def test_shows(phrases, shown):
    """One of the phrases is enough; without any, nothing is asked."""
    assert shown is shows(phrases, "sum raised KeyError: 'oops'")
