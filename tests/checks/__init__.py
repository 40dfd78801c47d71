"""All checks of the project, side by side: `python -m tests.checks`, or with `--full`."""
