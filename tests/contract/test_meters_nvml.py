"""GPU meters on a driver of our own making: what is read, at which scope, and what is lacking."""

from collections.abc import Callable

import pytest

from ecobench.errors import MeterError
from ecobench.measurement import MeterInfo, ReadingKind
from ecobench.meters.checks import check_meter
from ecobench.meters.nvml import NvmlFound, find_nvml
from ecobench.seams import Meter
from nvml_bed import NvmlBed
from nvml_build import NvmlLibrary
from nvml_models import A100, GH200, H100, MS, OLD_DRIVER_LACKS_FIELDS, P100

MakeBed = Callable[..., NvmlBed]


def find(bed: NvmlBed, *gpus: int) -> NvmlFound:
    return find_nvml([bed.uuids[gpu] for gpu in gpus] or None, root_pid=1)


def close(found: NvmlFound) -> None:
    for meter in found.meters:
        meter.close()


def named(found: NvmlFound, what: str, gpu: int = 0) -> Meter:
    """The meter of a kind or a quantity."""
    (meter,) = [one for one in found.meters if what in (one.info.quantity, one.info.kind) and _is_of(one.info, gpu)]
    return meter


def _is_of(info: MeterInfo, gpu: int) -> bool:
    return info.domain == f"gpu:{gpu}"


def value(meter: Meter, at_ns: int = 0) -> float:
    (sample,) = meter.read([at_ns])
    assert sample.raw is not None, sample.error
    return sample.raw * meter.info.si_per_count


def test_every_meter_keeps_the_contract(make_bed: MakeBed) -> None:
    """Stamps around the calls, readings or reasons, and a close that may come twice."""
    found = find(make_bed(H100, P100))

    assert len(found.meters) > 20
    for meter in found.meters:
        check_meter(meter, n_readings=2, every_s=0)


def test_readings_are_those_of_the_board(make_bed: MakeBed) -> None:
    """600 W for 2 s, limit 650 W of 700 W: everything in SI after `si_per_count`."""
    bed = make_bed(H100)
    bed.set_limit(0, 650)
    found = find(bed)
    counter = named(found, ReadingKind.ENERGY_COUNTER)
    bed.set_load(0, 600)
    bed.advance(1000 * MS)
    before_j = value(counter, 1)
    bed.advance(2000 * MS)

    assert value(counter, 2) - before_j == pytest.approx(1200, abs=0.01)
    assert value(named(found, ReadingKind.INSTANT_POWER), 2) == 600
    assert value(named(found, ReadingKind.AVERAGE_POWER), 2) == 600
    assert value(named(found, "memory_power_w"), 2) == 120
    assert value(named(found, "limit_requested_w"), 2) == value(named(found, "limit_enforced_w"), 2) == 650
    assert value(named(found, "sm_clock_mhz")) == 1980
    assert value(named(found, "power_cap_ns"), 2) == 0
    assert named(found, "power_cap_ns").info.kind is ReadingKind.TIME_COUNTER
    assert {meter.info.device for meter in found.meters} == {bed.uuids[0]}
    close(found)


def test_meters_of_one_board_share_a_pass(make_bed: MakeBed) -> None:
    """Asked for one instant they carry one stamp; asked for another, another."""
    found = find(make_bed(H100))
    counter, power = named(found, ReadingKind.ENERGY_COUNTER), named(found, ReadingKind.INSTANT_POWER)

    assert counter.read([7])[0].time_ns == power.read([7])[0].time_ns < counter.read([8])[0].time_ns
    close(found)


def test_only_power_and_energy_carry_energy(make_bed: MakeBed) -> None:
    """One counter and two powers a board, unique by domain, kind and quantity."""
    infos = [meter.info for meter in find(make_bed(H100, H100)).meters]

    assert len([info for info in infos if info.kind.carries_energy]) == 6
    assert len({(info.domain, info.kind, info.quantity) for info in infos}) == len(infos)
    assert all((info.quantity is None) == info.kind.carries_energy for info in infos)


def test_boards_without_an_average_or_a_counter_say_so(make_bed: MakeBed) -> None:
    """GA100 has no average; nothing before Volta counts energy."""
    found = find(make_bed(A100, P100))
    kinds = [
        {meter.info.kind for meter in found.meters if _is_of(meter.info, gpu) and meter.info.kind.carries_energy}
        for gpu in (0, 1)
    ]

    assert kinds == [{ReadingKind.ENERGY_COUNTER, ReadingKind.INSTANT_POWER}, {ReadingKind.INSTANT_POWER}]
    assert [(one.domain, "no energy counter" in one.reason) for one in found.absences] == [("gpu:1", True)]


def test_module_is_measured_by_the_power_of_its_gpu(make_bed: MakeBed) -> None:
    """Grace: 500 W of GPU and 120 W beside it. The counter has both, so it is left out."""
    bed = make_bed(GH200)
    bed.set_load(0, 500)
    bed.advance(2000 * MS)
    found = find(bed)

    assert value(named(found, ReadingKind.INSTANT_POWER)) == 500
    assert not [one for one in found.meters if one.info.kind is ReadingKind.ENERGY_COUNTER]
    assert "whole module" in found.absences[0].reason


def test_module_without_power_of_its_gpu_is_measured_whole(make_bed: MakeBed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the counter stays, with the module's power as its check, and both say what they count."""
    monkeypatch.setattr("ecobench.meters.nvml._BOARD", 7)  # a scope that no board answers
    found = find(make_bed(GH200))
    counter = named(found, ReadingKind.ENERGY_COUNTER)

    assert "whole module" in counter.info.counted
    assert counter.info.max_power_w is None
    assert value(named(found, ReadingKind.INSTANT_POWER)) == GH200.idle_w + 120


def test_old_driver_has_a_counter_and_a_power(make_bed: MakeBed, old_nvml_library: NvmlLibrary) -> None:
    """No power fields and no later functions: usage is of a second on an H100, of now on an A100."""
    bed = make_bed(H100, A100, library=old_nvml_library)
    bed.lack_fields(OLD_DRIVER_LACKS_FIELDS)
    found = find(bed)

    assert named(found, ReadingKind.AVERAGE_POWER, 0).info.domain == "gpu:0"
    assert named(found, ReadingKind.INSTANT_POWER, 1).info.domain == "gpu:1"
    assert value(named(found, ReadingKind.AVERAGE_POWER, 0)) == H100.idle_w
    assert value(named(found, "limit_enforced_w", 1)) == A100.default_w
    assert named(found, ReadingKind.ENERGY_COUNTER, 1)


def test_lost_board_fails_alone(make_bed: MakeBed) -> None:
    """Its readings say why; the others go on. Lost from the start, it is named."""
    bed = make_bed(H100, H100)
    found = find(bed)
    bed.lose(0)

    (lost,) = named(found, ReadingKind.ENERGY_COUNTER, 0).read([5])
    assert (lost.raw, "lost" in str(lost.error)) == (None, True)
    assert value(named(found, ReadingKind.ENERGY_COUNTER, 1), 5) > 0
    close(found)
    again = find(bed)
    assert {meter.info.domain for meter in again.meters} == {"gpu:1"}
    assert [one.domain for one in again.absences] == ["gpu:0"]
    close(again)


def test_board_that_cannot_be_measured_is_refused_by_name(make_bed: MakeBed) -> None:
    """MIG, and neither counter nor power; another board can be chosen instead."""
    bed = make_bed(H100, H100, H100)
    bed.set_mig(0)
    bed.remove_counter(1)
    bed.remove_power(1)
    for gpu, why in ((0, "MIG"), (1, "neither an energy counter nor a power")):
        with pytest.raises(MeterError, match=f"GPU {gpu} .*{why}"):
            find(bed, gpu)

    assert {meter.info.domain for meter in find(bed, 2).meters} == {"gpu:2"}


def test_processes_that_were_there_before_are_foreign(make_bed: MakeBed) -> None:
    """Counted while they stay."""
    bed = make_bed(H100)
    bed.list_processes(0, {4_000_000: 1 << 30})
    found = find(bed)
    foreign = named(found, "foreign_processes")

    assert value(foreign) == 1
    bed.list_processes(0, {})
    assert value(foreign) == 0
    close(found)
