"""The powercap meter on a fake tree with known joules, and what is found in trees that are not as they should be."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ecobench.energy import boundary_energies, counter_breaks, domain_energy, trace_of
from ecobench.errors import MeterError, RequestError
from ecobench.measurement import Boundary, DomainEnergy, Evidence, Segment, Window
from ecobench.meters import discover
from ecobench.meters.checks import check_meter
from ecobench.meters.estimate import EstimateMeter
from ecobench.meters.powercap import ROOT_VARIABLE, PowercapFound, find_powercap
from ecobench.seams import Meter, Sample
from powercap_tree import LARGEST_UJ, TURN_UJ, PowercapTree

STEP_NS = 100_000_000


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PowercapTree:
    """An empty tree that the environment names."""
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "powercap"))
    return PowercapTree(tmp_path / "powercap")


def find_moving(tree: PowercapTree, *zones: str) -> PowercapFound:
    """What is found while `zones` draw 50 W each."""
    with tree.running(dict.fromkeys(zones, 50.0)):
        return find_powercap()


def domains(found: PowercapFound) -> list[str]:
    """Names of the domains that are metered."""
    return [meter.info.domain for meter in found.meters]


def read_at_known_times(meter: Meter, n_readings: int, draw: Callable[[int], None] = lambda _: None) -> list[Sample]:
    """What the meter reads after each `draw(index)`, stamped as if one reading took 0 s and one came every 0.1 s."""
    samples = []
    for index in range(n_readings):
        draw(index)
        (sample,) = meter.read([0])
        samples.append(sample._replace(time_ns=index * STEP_NS))
    return samples


def whole(n_readings: int) -> Window:
    """The window from the first of so many readings to the last."""
    return Window(phase="train", segments=(Segment(start_ns=0, stop_ns=(n_readings - 1) * STEP_NS),))


def test_two_packages_and_their_dram_keep_the_contract(tree: PowercapTree) -> None:
    """Four meters, each moving while it is checked; core, uncore and MMIO twins are not counted twice."""
    zones = [tree.add_package(0), tree.add_package(1)]
    zones += [tree.add_part(0, 2, "dram"), tree.add_part(1, 0, "dram")]
    tree.add_part(0, 0, "core")
    tree.add_part(0, 1, "uncore")
    shutil.copytree(tree.root / "intel-rapl:1", tree.root / "intel-rapl-mmio:0")
    with tree.running(dict.fromkeys(zones, 50.0)):
        found = find_powercap()
        samples = [check_meter(meter) for meter in found.meters]

    assert domains(found) == ["cpu:0/package", "cpu:1/package", "cpu:0/dram", "cpu:1/dram"]
    assert found.absences == ()
    assert all(sample.error is None for each in samples for sample in each)
    for meter in found.meters:
        assert (meter.info.boundary, meter.info.evidence) == (Boundary.CPU, Evidence.C1)
        assert meter.info.period_ns == STEP_NS


def test_joules_are_exact_to_the_unit_over_a_wrap_and_a_reset(tree: PowercapTree) -> None:
    """1,234,567 uJ before each of 39 readings; the counter wraps after the 4th, and is set to 0 before the 20th."""
    zone = tree.add_package(0, energy_uj=TURN_UJ - 4 * 1_234_567 - 1)
    (meter,) = find_moving(tree, tree.add_package(1), zone).meters[:1]
    tree.set(zone, TURN_UJ - 4 * 1_234_567 - 1)

    def draw(index: int) -> None:
        if index == 20:
            tree.set(zone, 0)
        if index > 0:
            tree.advance(zone, 1_234_567)

    trace = trace_of(meter.info, read_at_known_times(meter, 40, draw))
    found = domain_energy(trace, whole(40))

    assert int(trace.raw[4]) == TURN_UJ - 1
    assert int(trace.raw[5]) == 1_234_566
    assert found.energy_j == 39 * 1_234_567 * 1e-6
    assert [broken.kind for broken in counter_breaks(trace)] == ["reset"]


def test_two_packages_and_dram_add_to_the_cpu_boundary(tree: PowercapTree) -> None:
    """10 readings: 9 x (3 + 2 + 1) J."""
    draws_uj = {tree.add_package(0): 3_000_000, tree.add_package(1): 2_000_000}
    draws_uj[tree.add_part(0, 0, "dram")] = 1_000_000
    found = find_moving(tree, *draws_uj)

    def energy(meter: Meter, zone: str) -> DomainEnergy:
        def draw(index: int) -> None:
            tree.advance(zone, draws_uj[zone] if index > 0 else 0)

        return domain_energy(trace_of(meter.info, read_at_known_times(meter, 10, draw)), whole(10))

    energies = [energy(meter, zone) for meter, zone in zip(found.meters, draws_uj, strict=True)]
    (total,) = boundary_energies(energies)

    assert (total.boundary, total.evidence) == (Boundary.CPU, Evidence.C1)
    assert total.energy_j == pytest.approx(54, abs=1e-9)
    # +-5 % rectangular, k = 2: 5.77 %, over all domains alike.
    assert total.instrument is not None
    assert total.instrument.high == pytest.approx(54 * 1.0577, abs=0.01)


@pytest.mark.parametrize(
    ("largest_uj", "turn_uj"),
    [(LARGEST_UJ, TURN_UJ), (65_532_610_987, 65_532_611_002), (1_000_000, 1_000_001)],
)
def test_a_turn_is_one_unit_more_than_the_largest_value(tree: PowercapTree, largest_uj: int, turn_uj: int) -> None:
    """2^32 units of 61.035 uJ and of 15.258 uJ, and a made-up range in single uJ."""
    (meter,) = find_moving(tree, tree.add_package(0, files={"max_energy_range_uj": largest_uj})).meters

    assert meter.info.wraps_at_count == turn_uj


def test_an_unknown_range_means_that_no_wrap_is_assumed(tree: PowercapTree) -> None:
    """The kernel says nothing sensible."""
    (meter,) = find_moving(tree, tree.add_package(0, files={"max_energy_range_uj": "none"})).meters

    assert meter.info.wraps_at_count is None


@pytest.mark.parametrize(
    ("files", "most_w"),
    [
        ({}, 1000),
        ({"constraint_0_max_power_uw": 125_000_000}, 250),
        ({"constraint_0_max_power_uw": 15_000_000, "constraint_1_power_limit_uw": 64_000_000}, 128),
        ({"constraint_0_max_power_uw": 0}, 1000),
        ({"constraint_0_max_power_uw": 4_095_875_000}, 1000),
        ({"constraint_0_max_power_uw": "?"}, 1000),
    ],
)
def test_greatest_power_is_twice_the_highest_sane_limit(
    tree: PowercapTree, files: dict[str, int | str], most_w: float
) -> None:
    """Turbo goes over the long-term limit; limits of 0 and of 4 kW are no limits."""
    (meter,) = find_moving(tree, tree.add_package(0, files=files)).meters

    assert meter.info.max_power_w == most_w


def test_psys_is_named_and_not_used(tree: PowercapTree) -> None:
    """It is no package, and what it includes differs."""
    found = find_moving(tree, tree.add_package(0), tree.add_package(1, name="psys"))

    assert domains(found) == ["cpu:0/package"]
    assert ["psys" in absence.reason for absence in found.absences] == [True]


def test_a_constant_package_takes_all_of_rapl_away(tree: PowercapTree) -> None:
    """A sum over one of two packages is no CPU energy."""
    moving = tree.add_package(0)
    tree.add_package(1)

    found = find_moving(tree, moving)

    assert found.meters == ()
    assert [absence.domain for absence in found.absences] == ["cpu:1/package"]
    assert "did not move in 0.1 s (it stands at 1000000 uJ)" in found.absences[0].reason


def test_constant_dram_is_absent_and_the_package_stays(tree: PowercapTree) -> None:
    """Client processors list a DRAM zone that always says 0."""
    moving = tree.add_package(0)
    tree.add_part(0, 0, "dram", energy_uj=0)

    found = find_moving(tree, moving)

    assert domains(found) == ["cpu:0/package"]
    assert [absence.domain for absence in found.absences] == ["cpu:0/dram"]


@pytest.mark.parametrize("garbage", ["", "\n", "abc\n", "-5\n", "1.5\n", "9" * 30, b"\xff\x00", "1 2\n"])
def test_a_value_that_is_no_count_is_a_failed_sample(tree: PowercapTree, garbage: str | bytes) -> None:
    """The reading says why, and the next one counts again."""
    zone = tree.add_package(0)
    (meter,) = find_moving(tree, zone).meters
    tree.write(zone, garbage)
    samples = check_meter(meter, n_readings=2)
    tree.set(zone, 77)

    assert [sample.raw for sample in samples] == [None, None]
    assert all(sample.error is not None and sample.error.startswith("no count") for sample in samples)
    assert meter.read([0])[0].raw == 77


def test_a_counter_that_vanishes_is_a_failed_sample_until_it_is_back(tree: PowercapTree) -> None:
    """A file that is gone, a folder in its place, a pipe that nobody writes: no exception, and nothing blocks."""
    zone = tree.add_package(0)
    (meter,) = find_moving(tree, zone).meters
    path = tree.path(zone)

    path.unlink()
    gone = meter.read([0])[0]
    path.mkdir()
    folder = meter.read([0])[0]
    path.rmdir()
    os.mkfifo(path)
    pipe = meter.read([0])[0]
    path.unlink()
    tree.set(zone, 5)
    back = meter.read([0])[0]

    assert (gone.raw, gone.error) == (None, "no such file")
    assert (folder.raw, folder.error) == (None, "is a directory")
    assert (pipe.raw, pipe.error) == (None, "no count: b''")
    assert (back.raw, back.error) == (5, None)


@contextmanager
def _unprivileged() -> Iterator[None]:
    """Root may read everything: be nobody for a moment."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def test_permission_denied_comes_with_the_exact_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Since Linux 5.10 only root reads the counters: `auto` estimates and says so, `rapl` refuses."""
    # Not in the test's own folder, which only its owner may enter.
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        tree = PowercapTree(folder / "powercap")
        tree.path(tree.add_package(0)).chmod(0)
        monkeypatch.setenv(ROOT_VARIABLE, str(tree.root))
        with _unprivileged():
            auto = discover("auto", root_pid=os.getpid())
            with pytest.raises(MeterError) as refusal:
                discover("rapl", root_pid=os.getpid())
    finally:
        shutil.rmtree(folder)

    (absence,) = [one for one in auto.absences if one.interface == "powercap"]
    assert isinstance(auto.meters[0], EstimateMeter)
    assert absence.domain == "cpu:0/package"
    assert absence.reason.endswith("intel-rapl:0/energy_uj: permission denied")
    assert absence.remedy is not None
    assert f"sudo chmod a+r {tree.root}/intel-rapl:*/energy_uj" in absence.remedy
    assert "/etc/udev/rules.d/" in absence.remedy
    assert refusal.value.hint == absence.remedy
    assert refusal.value.exit_code == 3


def test_a_hidden_tree_says_what_hides_it(tree: PowercapTree) -> None:
    """Containers leave the names and mask what they point to."""
    (tree.root / "intel-rapl:0").symlink_to(tree.root / "masked")

    found = find_powercap()

    assert found.meters == ()
    assert found.absences[0].reason.endswith("no such file")
    assert found.absences[0].remedy is not None
    assert "container" in found.absences[0].remedy


def test_auto_takes_rapl_where_it_is_and_the_estimate_where_it_is_not(
    tree: PowercapTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says what is missing in the second case."""
    with tree.running({tree.add_package(0): 50.0}):
        with_rapl = discover("auto", root_pid=os.getpid())
        asked_for = discover("rapl", root_pid=os.getpid())
    monkeypatch.setenv(ROOT_VARIABLE, str(tree.root / "nowhere"))
    without = discover("auto", root_pid=os.getpid())

    assert [meter.info.evidence for meter in with_rapl.meters] == [Evidence.C1]
    assert [meter.info.evidence for meter in asked_for.meters] == [Evidence.C1]
    assert [meter.info.evidence for meter in without.meters] == [Evidence.EST]
    absences = {absence.interface: absence.reason for absence in without.absences}
    assert absences["powercap"].endswith("does not exist")
    assert "no NVIDIA driver" in absences["nvml"]


@pytest.mark.usefixtures("tree")
def test_none_is_no_meter_and_a_typo_is_refused() -> None:
    """`--meter rappl`."""
    none = discover("none", root_pid=os.getpid())
    with pytest.raises(RequestError, match="rappl") as refusal:
        discover("rappl", root_pid=os.getpid())
    with pytest.raises(MeterError, match="no RAPL package in"):
        discover("rapl", root_pid=os.getpid())

    assert (none.meters, none.absences) == ((), ())
    assert refusal.value.hint == "did you mean `rapl`?"
