"""Physics of a simulated node: clock and speed under a power limit, temperature, and what the host takes.

    voltage  v(x) = max(floor, 1 - slope (1 - x))          x: clock, v: voltage, as shares of those at full clock
    speed    s(x) = 1 / (clock_share / x + the rest)       Amdahl: memory and communication do not wait for the SMs
    power    P(x) = static + (demand - static) v(x)^2 (tree x + (1 - tree) s(x))

Near full clock P falls with nearly the cube of x, below the floor of voltage in proportion to it; there static power
is paid for longer, and energy per token rises again. A limit takes the fastest clock whose power it allows. Static
power grows exponentially with temperature; die and heatsink follow power with a time constant each. Pure.
"""

import math
import random
from dataclasses import dataclass, replace
from functools import lru_cache

LOWEST_CLOCK_SHARE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One kind of board.

    Attributes:
        static_w: what it takes under load apart from what it switches, at `reference_c`.
        idle_w: without a context; `context_idle_w`: with one, waiting.
        voltage_slope: share of voltage lost per share of clock; `voltage_floor`: least share of voltage.
        clock_tree_share: of the switched power, what does not depend on how busy the units are.
        leakage_per_c: relative growth of static power per degree.
        resistance_c_per_w: die over ambient, in a steady state; `die_share` of it responds with `die_tau_s`.
        static_spread, demand_spread: standard deviation between boards of one kind, as shares.
    """

    name: str
    min_w: float
    default_w: float
    max_w: float
    max_clock_mhz: float
    static_w: float
    idle_w: float
    context_idle_w: float
    voltage_slope: float
    voltage_floor: float
    clock_tree_share: float
    reference_c: float
    ambient_c: float
    leakage_per_c: float
    resistance_c_per_w: float
    die_share: float
    die_tau_s: float
    sink_tau_s: float
    static_spread: float
    demand_spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a workload asks of one board: power at full clock, and what its time depends on; the shares add up to 1."""

    demand_w: float
    clock_share: float
    memory_share: float
    communication_share: float

    def __post_init__(self) -> None:
        total = self.clock_share + self.memory_share + self.communication_share
        if not math.isclose(total, 1.0, abs_tol=1e-9) or self.clock_share <= 0:
            raise ValueError(f"shares of a load add up to 1, the clock's above 0: they add up to {total:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What is in the node beside the boards, and what its supplies lose.

    Attributes:
        idle_w: processors, memory, network and fans, waiting; `loaded_w`: while all boards work.
        supply_loss_share: of what is delivered, lost between AC and DC.
    """

    idle_w: float
    loaded_w: float
    supply_loss_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """Where a board settles: clock and speed as shares of those at full clock, and power."""

    clock_share: float
    speed_share: float
    power_w: float
    is_capped: bool


@lru_cache(maxsize=4096)
def operating_point(
    board: Board, load: Load, *, limit_w: float, max_clock_share: float = 1.0, temperature_c: float | None = None
) -> OperatingPoint:
    """The fastest clock whose power `limit_w` allows, at `temperature_c` (that of the fit where None).

    Raises:
        ValueError: the limit does not even carry the static power.
    """
    static_w = board.static_w if temperature_c is None else static_power_w(board, temperature_c)
    if limit_w <= static_w:
        raise ValueError(f"{limit_w:g} W do not carry the {static_w:.1f} W that {board.name} takes without a clock")
    high = max_clock_share
    is_capped = _power_w(board, load, high, static_w) > limit_w
    if is_capped:
        low = LOWEST_CLOCK_SHARE
        for _ in range(60):
            middle = (low + high) / 2
            if _power_w(board, load, middle, static_w) > limit_w:
                high = middle
            else:
                low = middle
        high = low
    return OperatingPoint(
        clock_share=high,
        speed_share=speed_share(load, high),
        power_w=_power_w(board, load, high, static_w),
        is_capped=is_capped,
    )


@lru_cache(maxsize=4096)
def settled_point(board: Board, load: Load, *, limit_w: float, max_clock_share: float = 1.0) -> OperatingPoint:
    """The operating point once the temperature that it causes has settled."""
    temperature_c = board.reference_c
    for _ in range(40):
        point = operating_point(
            board, load, limit_w=limit_w, max_clock_share=max_clock_share, temperature_c=temperature_c
        )
        temperature_c = settled_temperature_c(board, point.power_w)
    return point


def voltage_share(board: Board, clock_share: float) -> float:
    """Voltage at a clock, as a share of that at full clock."""
    return max(board.voltage_floor, 1 - board.voltage_slope * (1 - clock_share))


def speed_share(load: Load, clock_share: float) -> float:
    """Throughput at a clock, as a share of that at full clock."""
    return 1 / (load.clock_share / clock_share + load.memory_share + load.communication_share)


def static_power_w(board: Board, temperature_c: float) -> float:
    """What is not switched, at a temperature of the die."""
    return board.static_w * math.exp(board.leakage_per_c * (temperature_c - board.reference_c))


def settled_temperature_c(board: Board, power_w: float) -> float:
    """Die temperature after `power_w` for long."""
    return board.ambient_c + board.resistance_c_per_w * power_w


def heat(board: Board, state_c: tuple[float, float], *, power_w: float, duration_s: float) -> tuple[float, float]:
    """Rise of (die over heatsink, heatsink over ambient) after `power_w` for `duration_s`, exactly."""
    die_end = board.resistance_c_per_w * board.die_share * power_w
    sink_end = board.resistance_c_per_w * (1 - board.die_share) * power_w
    return (
        die_end + (state_c[0] - die_end) * math.exp(-duration_s / board.die_tau_s),
        sink_end + (state_c[1] - sink_end) * math.exp(-duration_s / board.sink_tau_s),
    )


def node_power_w(host: Host, board_powers_w: tuple[float, ...], *, busy_share: float) -> float:
    """AC power of the node: boards and host, and what the supplies lose."""
    host_w = host.idle_w + (host.loaded_w - host.idle_w) * busy_share
    return (sum(board_powers_w) + host_w) * (1 + host.supply_loss_share)


def board_of(board: Board, *, index: int, seed: int) -> Board:
    """The `index`-th board of a node: of its kind, and yet its own; the same for the same seed."""
    chance = random.Random(f"{board.name}/{seed}/{index}")  # a spread, not a secret
    return replace(board, static_w=board.static_w * max(0.5, 1 + chance.gauss(0, board.static_spread)))


def load_of(board: Board, load: Load, *, index: int, seed: int) -> Load:
    """What the load asks of the `index`-th board: chips switch differently."""
    chance = random.Random(f"{board.name}/{seed}/{index}/demand")  # a spread, not a secret
    return replace(load, demand_w=load.demand_w * max(0.5, 1 + chance.gauss(0, board.demand_spread)))


def _power_w(board: Board, load: Load, clock_share: float, static_w: float) -> float:
    tree = board.clock_tree_share
    busy = tree * clock_share + (1 - tree) * speed_share(load, clock_share)
    return static_w + (load.demand_w - board.static_w) * voltage_share(board, clock_share) ** 2 * busy
