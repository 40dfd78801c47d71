"""One key, three wire formats, any model behind it."""

__version__ = "1.0.0"


def commit() -> str | None:
    """The commit of this code in 12 digits, with `-dirty` after it if files were changed: as the
    build wrote it down, in a checkout as git says; else None."""
    import subprocess
    from pathlib import Path

    package = Path(__file__).parent
    try:
        return (package / "commit.txt").read_text(encoding="ascii").strip() or None
    except OSError:
        pass
    if not (package.parent / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    try:
        return subprocess.run(  # noqa: S603 - of the user's own PATH
            command, cwd=package, capture_output=True, check=True, text=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, or not a repository of this user
        return None
