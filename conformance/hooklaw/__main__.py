"""``python -m hooklaw``."""

from hooklaw.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
