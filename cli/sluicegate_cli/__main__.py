"""Entry point. `--version` is answered here, before anything costly is imported."""

import sys


def main() -> int:
    """Run the command line and return its exit code."""
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        return _show_version()
    try:
        from sluicegate_cli.shell import run
    except KeyboardInterrupt:
        return 130
    return run(sys.argv)


def _show_version() -> int:
    from sluicegate import __version__

    try:
        print(f"sluicegate {__version__}", flush=True)
    except BrokenPipeError:
        sys.stdout = None  # or Python complains at its end
    except OSError as e:
        sys.stdout = None
        print(f"sluicegate: error: cannot write the version: {e.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
