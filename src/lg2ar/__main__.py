"""``python -m lg2ar`` is the command line."""

from lg2ar.cli import main

if __name__ == "__main__":
    main()
