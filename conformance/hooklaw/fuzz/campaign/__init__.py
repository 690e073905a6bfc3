"""Fuzzing in many processes: schedule, findings, minimizing."""
