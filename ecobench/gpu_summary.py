"""Each GPU over the trials of a run: energy, power, limit, clock, temperature, and its check. Pure."""

from collections.abc import Iterable, Sequence

from ecobench.conditions import cap_state, cap_state_of_share
from ecobench.gpu_records import CapState, GpuSummary
from ecobench.measurement import ReadingKind
from ecobench.records import TrialResult


def gpu_summaries(results: Sequence[TrialResult]) -> tuple[GpuSummary, ...]:
    """One line for each GPU that was metered, means over the trials that tell."""
    domains = dict.fromkeys(one.domain for result in results for one in result.gpus)
    return tuple(_summary(domain, results) for domain in domains)


def cap_state_of(results: Iterable[TrialResult]) -> CapState | None:
    """Over all trials; None where no GPU was metered."""
    return cap_state(result.cap_state for result in results if result.cap_state is not None)


def _summary(domain: str, results: Sequence[TrialResult]) -> GpuSummary:
    found = [one for result in results for one in result.gpus if one.domain == domain]
    limited_share = _mean(one.cap_share for one in found)
    return GpuSummary(
        domain=domain,
        uuid=next((one.uuid for one in found if one.uuid is not None), None),
        n=sum(one.energy_j is not None for one in found),
        energy_j=_mean(one.energy_j for one in found),
        mean_power_w=_mean(one.mean_power_w for one in found),
        sm_clock_mhz=_mean(one.sm_clock_mhz for one in found),
        temperature_c=_mean(one.temperature_c for one in found),
        hottest_c=max((one.hottest_c for one in found if one.hottest_c is not None), default=None),
        limit_requested_w=_same(one.limit_requested_w for one in found),
        limit_enforced_w=_same(limit for one in found for limit in (one.limit_lowest_w, one.limit_highest_w)),
        limited_share=limited_share,
        cap_state=cap_state(cap_state_of_share(one.cap_share) for one in found) or CapState.UNKNOWN,
        check_ratio=_mean(
            check.ratio
            for result in results
            for phase in result.phases
            if phase.phase == result.measured_phase
            for check in phase.checks
            if check.domain == domain and check.kind is ReadingKind.INSTANT_POWER
        ),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _same(values: Iterable[float | None]) -> float | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None
