"""How many examples property tests try: the profiles `quick` and `full`.

`quick` tries the same few examples in every run; `full` (`--hypothesis-profile=full`, `make check`)
tries many, and others each time. Neither has a deadline, nor fails because a machine is slow.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def register() -> None:
    """Makes both profiles known and loads `quick`; pytest's option may load the other one."""
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("quick", patient, max_examples=20, derandomize=True)
    settings.register_profile("full", patient, max_examples=100)
    settings.load_profile("quick")


def examples(times: float, **options: int) -> settings:
    """`times` as many examples as the profile asks of other tests."""
    return settings(max_examples=max(1, round(settings().max_examples * times)), **options)
