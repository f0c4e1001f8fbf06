"""Power limits and clocks of a simulated node: the same words as for a real one, and nothing outside of it is set."""

from collections.abc import Sequence
from pathlib import Path

from ecobench.limits import LimitRange, resolve_settings
from ecobench.records import ControlRecord, LimitState
from ecobench.simulation.node import Board


class SimulatedControl:
    """`Control` of a simulated node. `limit_w` and `clock_share` are what is in force."""

    def __init__(self, board: Board, *, n_boards: int, power_limit: str | None, sm_clock: str | None) -> None:
        self._board = board
        self._run = ""
        self._is_applied = False
        self._records: tuple[ControlRecord, ...] = ()
        self.settings = resolve_settings(power_limit, sm_clock, limit_ranges(board, n_boards))
        self._by_index = {setting.index: setting for setting in self.settings}

    @property
    def run(self) -> str:
        return self._run

    def name_run(self, run: str) -> None:
        """Whose settings these are from now on."""
        self._run = run

    def limit_w(self, index: int) -> float:
        """The limit of one board as it stands."""
        setting = self._by_index.get(index) if self._is_applied else None
        return self._board.default_w if setting is None or setting.limit_w is None else setting.limit_w

    def clock_share(self, index: int) -> float:
        """What the clock of one board may reach, as a share of full clock."""
        setting = self._by_index.get(index) if self._is_applied else None
        if setting is None or setting.sm_clock_mhz is None:
            return 1.0
        return setting.sm_clock_mhz / self._board.max_clock_mhz

    def prepare(self) -> Sequence[Path]:
        return ()

    def apply(self) -> None:
        self._is_applied = True

    def check(self) -> None:
        """Nobody else can reach it."""

    def restore(self) -> tuple[ControlRecord, ...]:
        before = _state(self._board.default_w)
        if self._is_applied:
            self._records = tuple(
                ControlRecord(
                    setting=setting,
                    before=before,
                    during=_state(self.limit_w(setting.index)),
                    at_end=_state(self.limit_w(setting.index)),
                    after=before,
                    changes=(),
                    problem=None,
                )
                for setting in self.settings
            )
        self._is_applied = False
        return self._records

    def close(self) -> None:
        """Nothing is held."""


def board_uuid(index: int) -> str:
    """Identity of a board that does not exist."""
    return f"GPU-simulated-{index}"


def limit_ranges(board: Board, n_boards: int) -> list[LimitRange]:
    """What the boards say of their limits."""
    return [
        LimitRange(
            index=index,
            uuid=board_uuid(index),
            name=board.name,
            min_w=board.min_w,
            default_w=board.default_w,
            max_w=board.max_w,
            max_clock_mhz=round(board.max_clock_mhz),
        )
        for index in range(n_boards)
    ]


def _state(watts: float) -> LimitState:
    return LimitState(requested_w=watts, enforced_w=watts, persistence=True)
