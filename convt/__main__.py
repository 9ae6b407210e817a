"""``python -m convt``: look at the installation, or see it work."""

import argparse
import sys
from collections.abc import Sequence

from convt import isa, threads
from convt.config import show_config


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m convt", description="Transposed convolution on CPUs.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="print what this installation is and would use")
    demo = commands.add_parser("demo", help="enlarge a photograph, check it, write a before/after picture")
    demo.add_argument("--output", default="convt-demo.png", help="picture to write (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:  # the environment's variables
        isa.choose()
        threads.resolve(None)
    except ValueError as error:
        parser.exit(1, f"{error}\n")
    if options.command == "demo":
        from convt.demo import main as run_demo

        return run_demo(options.output)
    show_config()
    return 0


if __name__ == "__main__":
    sys.exit(main())
