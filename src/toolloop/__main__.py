"""Run the command: `python -m toolloop`."""

from toolloop._cli import main

if __name__ == "__main__":
    main()
