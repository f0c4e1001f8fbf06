"""Signals that ask a run to end: counted, and raised only where someone says that nothing can be lost by it."""

import signal
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While entered, SIGINT, SIGTERM and SIGHUP only leave their mark here; the loops of a run look at it.

    Attributes:
        signum: the last one that came; None while none has.
        count: how many came. A second one means now.
        raises: whether one that comes also ends what is being done, as `KeyboardInterrupt`.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.count = 0
        self.raises = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup`, or a shell's `trap '' INT`: it stays ignored
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what `signal.signal` gave back

    @property
    def name(self) -> str:
        """`SIGINT`; only once one has come."""
        assert self.signum is not None
        return signal.Signals(self.signum).name

    def _note(self, signum: int, _: FrameType | None) -> None:
        self.signum = signum
        self.count += 1
        if self.raises:
            raise KeyboardInterrupt
