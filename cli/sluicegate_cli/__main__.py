"""Entry point. `--version` is answered here, before anything costly is imported."""

import sys


def main() -> int:
    """Run the command line and give its exit code."""
    if sys.argv[1:] == ["--version"]:
        from sluicegate import __version__

        print(f"sluicegate {__version__}")
        return 0
    from sluicegate_cli.shell import run

    return run(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
