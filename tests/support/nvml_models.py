"""Boards for the NVML test bed: what several generations answer, as far as it is known.

Where a number is public (limits, clocks, memory, which field a generation has, update periods and averaging windows of
its sensors) it is that one. Idle power, thermal resistance and the CPU share of a module are merely plausible. A board
like none of these is one `dataclasses.replace` away.
"""

import hashlib
from dataclasses import dataclass

MS = 1_000_000

# Field ids by what they say; the numbers are NVML's.
CAP_NS, SYNC_BOOST_NS, MEMORY_TEMPERATURE, ENERGY = 74, 76, 82, 83
REMAPPED = (142, 143, 144, 145)
AVERAGE_POWER, INSTANT_POWER = 185, 186
MIN_LIMIT, MAX_LIMIT, DEFAULT_LIMIT, ENFORCED_LIMIT, ENERGY_TOO, REQUESTED_LIMIT = 187, 188, 189, 190, 191, 192
THERMAL_AND_BRAKE_NS = (269, 270, 271)

EVERY_BOARD = frozenset(
    {CAP_NS, SYNC_BOOST_NS, INSTANT_POWER, MIN_LIMIT, MAX_LIMIT, DEFAULT_LIMIT, ENFORCED_LIMIT, REQUESTED_LIMIT}
    | set(THERMAL_AND_BRAKE_NS)
)
DATA_CENTRE = EVERY_BOARD | {ENERGY, ENERGY_TOO, MEMORY_TEMPERATURE}

# What later drivers brought: absent where an old one is installed.
OLD_DRIVER_LACKS = (
    "nvmlDeviceGetC2cModeInfoV",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceSetPowerManagementLimit_v2",
)
OLD_DRIVER_LACKS_FIELDS = (AVERAGE_POWER, INSTANT_POWER, *range(MIN_LIMIT, REQUESTED_LIMIT + 1), *THERMAL_AND_BRAKE_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """One kind of board.

    Attributes:
        usage_is_average: `nvmlDeviceGetPowerUsage` gives the average of 1 s (Ampere but GA100, and newer).
        memory_share: of the board's power, read at the memory's scope; 0: there is no such scope.
        module_w: what the rest of a module (its CPU) draws; None: it is no module.
    """

    name: str
    architecture: int
    capability: tuple[int, int]
    pci_device_id: int
    brand: int = 14
    min_w: float
    default_w: float
    max_w: float
    idle_w: float
    lowest_mhz: int = 210
    highest_mhz: int
    memory_mhz: int
    memory_bytes: int
    fields: frozenset[int]
    usage_is_average: bool
    period_ms: float = 100
    window_ms: float = 25
    counter_period_ms: float = 100
    memory_share: float = 0
    module_w: float | None = None
    has_ecc: bool = True
    has_mig: bool = False
    has_serial: bool = True
    c_per_w: float = 0.06


P100 = GpuModel(
    name="Tesla P100-SXM2-16GB",
    architecture=4,
    capability=(6, 0),
    pci_device_id=0x15F910DE,
    brand=2,
    min_w=150,
    default_w=300,
    max_w=300,
    idle_w=32,
    highest_mhz=1480,
    memory_mhz=715,
    memory_bytes=16 << 30,
    fields=EVERY_BOARD,  # no energy counter before Volta
    usage_is_average=False,
    period_ms=20,
    window_ms=10,
)
V100 = GpuModel(
    name="Tesla V100-SXM2-32GB",
    architecture=5,
    capability=(7, 0),
    pci_device_id=0x1DB510DE,
    brand=2,
    min_w=150,
    default_w=300,
    max_w=300,
    idle_w=42,
    highest_mhz=1530,
    memory_mhz=877,
    memory_bytes=32 << 30,
    fields=DATA_CENTRE,
    usage_is_average=False,
    period_ms=20,
    window_ms=10,
    counter_period_ms=20,
)
A100 = GpuModel(
    name="NVIDIA A100-SXM4-80GB",
    architecture=7,
    capability=(8, 0),
    pci_device_id=0x20B210DE,
    min_w=100,
    default_w=400,
    max_w=400,
    idle_w=60,
    highest_mhz=1410,
    memory_mhz=1593,
    memory_bytes=80 << 30,
    fields=DATA_CENTRE | set(REMAPPED),  # GA100 has no average
    usage_is_average=False,
    has_mig=True,
)
A40 = GpuModel(
    name="NVIDIA A40",
    architecture=7,
    capability=(8, 6),
    pci_device_id=0x223510DE,
    min_w=100,
    default_w=300,
    max_w=300,
    idle_w=30,
    highest_mhz=1740,
    memory_mhz=7251,
    memory_bytes=46068 << 20,
    fields=DATA_CENTRE - {MEMORY_TEMPERATURE} | {AVERAGE_POWER, *REMAPPED},
    usage_is_average=True,
    window_ms=100,
)
RTX4090 = GpuModel(
    name="NVIDIA GeForce RTX 4090",
    architecture=8,
    capability=(8, 9),
    pci_device_id=0x268410DE,
    brand=5,
    min_w=150,
    default_w=450,
    max_w=600,
    idle_w=22,
    highest_mhz=3105,
    memory_mhz=10501,
    memory_bytes=24564 << 20,
    fields=DATA_CENTRE - {MEMORY_TEMPERATURE} | {AVERAGE_POWER},
    usage_is_average=True,
    window_ms=100,
    has_ecc=False,
    has_serial=False,
)
H100 = GpuModel(
    name="NVIDIA H100 80GB HBM3",
    architecture=9,
    capability=(9, 0),
    pci_device_id=0x233010DE,
    min_w=200,
    default_w=700,
    max_w=700,
    idle_w=72,
    highest_mhz=1980,
    memory_mhz=2619,
    memory_bytes=81559 << 20,
    fields=DATA_CENTRE | {AVERAGE_POWER, *REMAPPED},
    usage_is_average=True,
    memory_share=0.2,
    has_mig=True,
)
H200 = GpuModel(
    name="NVIDIA H200",
    architecture=9,
    capability=(9, 0),
    pci_device_id=0x233510DE,
    min_w=200,
    default_w=700,
    max_w=700,
    idle_w=76,
    highest_mhz=1980,
    memory_mhz=3201,
    memory_bytes=143771 << 20,
    fields=DATA_CENTRE | {AVERAGE_POWER, *REMAPPED},
    usage_is_average=True,
    memory_share=0.2,
    has_mig=True,
)
GH200 = GpuModel(
    name="NVIDIA GH200 480GB",
    architecture=9,
    capability=(9, 0),
    pci_device_id=0x234210DE,
    min_w=100,
    default_w=900,
    max_w=900,
    idle_w=78,
    highest_mhz=1980,
    memory_mhz=2619,
    memory_bytes=97871 << 20,
    fields=DATA_CENTRE | {AVERAGE_POWER, *REMAPPED},
    usage_is_average=True,
    memory_share=0.2,
    module_w=120,
    has_mig=True,
)
MODELS = (P100, V100, A100, A40, RTX4090, H100, H200, GH200)


def uuid_of(slot: int) -> str:
    """A UUID for the board at NVML index `slot`; the order of UUIDs is not that of indices."""
    digest = hashlib.sha256(f"board {slot}".encode()).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def pci_bus_of(slot: int) -> int:
    """A PCI bus number; NVML counts in their order."""
    return (0x1B, 0x29, 0x43, 0x52, 0x9D, 0xC3, 0xD1, 0xDF)[slot % 8] if slot < 8 else 0xE0 + slot
