"""``python -m stridewise``: the command line."""

from stridewise.cli.main import main

if __name__ == "__main__":
    main()
