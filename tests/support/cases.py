"""Many cases in one test, for those that are too small to be worth a test each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Test = Callable[..., Any]


def in_one_test(
    names: str | Sequence[str],
    cases: Iterable[Any],
    *,
    ids: Callable[[Any], str | None] = str,
) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but one test runs all the cases, and its error names those that
    failed. The test may not be asynchronous."""
    parameters = [names] if isinstance(names, str) else [*names]
    rows = [(case,) if len(parameters) == 1 else tuple(case) for case in cases]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            errors: list[tuple[str, BaseException]] = []
            for row in rows:
                case = "-".join(filter(None, map(ids, row)))
                try:
                    test(**fixtures, **dict(zip(parameters, row, strict=True)))
                except Exception as error:
                    errors.append((case, error))
                except BaseException as error:
                    error.add_note(f"case: {case}")
                    raise
            if errors:
                failed, (_, first) = [case for case, _ in errors], errors[0]
                first.add_note(f"{len(failed)} of {len(rows)} cases failed: {', '.join(failed)}")
                raise first

        signature = inspect.signature(test)
        kept = [each for name, each in signature.parameters.items() if name not in parameters]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorate
