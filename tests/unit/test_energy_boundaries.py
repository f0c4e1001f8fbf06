"""Sums of domains within a boundary: only where all are there, never over evidence, never one in another."""

import pytest

from ecobench.energy import boundary_energies
from ecobench.measurement import Boundary, BoundaryEnergy, DomainEnergy, Evidence, Interval


def domain(
    name: str,
    energy_j: float | None,
    *,
    boundary: Boundary = Boundary.CPU,
    evidence: Evidence = Evidence.C1,
    reason: str | None = None,
) -> DomainEnergy:
    """Energy of one domain, +-10 %."""
    return DomainEnergy(
        domain=name,
        boundary=boundary,
        evidence=evidence,
        method="counter",
        energy_j=energy_j,
        reason=reason,
        instrument=None if energy_j is None else Interval(low=energy_j * 0.9, high=energy_j * 1.1),
        coverage_share=1.0,
        largest_gap_s=0.1,
    )


def test_domains_add_and_so_do_the_ends_of_their_intervals() -> None:
    """100 + 20 J, each +-10 %, fully correlated: 108 to 132 J."""
    (found,) = boundary_energies([domain("cpu:0/package", 100), domain("cpu:0/dram", 20)])

    assert found == BoundaryEnergy(
        boundary=Boundary.CPU,
        evidence=Evidence.C1,
        domains=("cpu:0/package", "cpu:0/dram"),
        energy_j=120,
        reason=None,
        instrument=Interval(low=pytest.approx(108), high=pytest.approx(132)),
    )


def test_a_missing_domain_takes_the_sum_away_and_is_named() -> None:
    """A part is not the whole."""
    (found,) = boundary_energies([domain("cpu:0/package", 100), domain("cpu:1/package", None, reason="device lost")])

    assert (found.energy_j, found.instrument) == (None, None)
    assert found.reason == "cpu:1/package: device lost"
    assert found.domains == ("cpu:0/package", "cpu:1/package")


def test_evidence_and_boundaries_are_never_mixed() -> None:
    """Counter and integral of one board, and a CPU: three figures."""
    found = boundary_energies(
        [
            domain("gpu:0", 500, boundary=Boundary.GPU, evidence=Evidence.G1),
            domain("gpu:0", 490, boundary=Boundary.GPU, evidence=Evidence.G0),
            domain("cpu:0/package", 100),
        ]
    )

    assert [(each.boundary, each.evidence, each.energy_j) for each in found] == [
        (Boundary.GPU, Evidence.G1, 500),
        (Boundary.GPU, Evidence.G0, 490),
        (Boundary.CPU, Evidence.C1, 100),
    ]


def test_a_domain_inside_another_is_not_added_twice() -> None:
    """A board's power includes its memory's."""
    (found,) = boundary_energies(
        [
            domain("gpu:0", 500, boundary=Boundary.GPU, evidence=Evidence.G0),
            domain("gpu:0/memory", 60, boundary=Boundary.GPU, evidence=Evidence.G0),
            domain("gpu:01", 40, boundary=Boundary.GPU, evidence=Evidence.G0),
        ]
    )

    assert found.energy_j == 540
    assert found.domains == ("gpu:0", "gpu:01")


def test_one_domain_twice_is_a_mistake() -> None:
    """Instant and average power of one board: the caller says which of them counts."""
    with pytest.raises(ValueError, match="a domain twice"):
        boundary_energies([domain("cpu:0/package", 1), domain("cpu:0/package", 1)])


def test_nothing_metered_is_no_figure() -> None:
    """`--meter none`."""
    assert boundary_energies([]) == ()
