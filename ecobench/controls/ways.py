"""The ways to make a setting: the driver itself, a zeusd daemon, or a command of the site's own.

    nvml                                     needs root, or in a container CAP_SYS_ADMIN
    zeusd:/run/zeusd/zeusd.sock              where $ZEUSD_SOCK_PATH names its socket
    command:sudo -n gpu-limit {uuid} {watts} where $ECOBENCH_POWER_COMMAND gives it; also {index}

Reading needs no permission and always goes to the driver, so what was set is proved by another path.
"""

import http.client
import json
import os
import shlex
import socket
import subprocess
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlencode

from ecobench.controls.board import Board
from ecobench.errors import ControlError

COMMAND_VARIABLE = "ECOBENCH_POWER_COMMAND"
SOCKET_VARIABLE = "ZEUSD_SOCK_PATH"
TOKEN_VARIABLE = "ZEUSD_TOKEN"
ANSWER_WITHIN_S = 10.0


class Way(Protocol):
    """Makes settings on a board. Each raises `ControlError` where that cannot be."""

    def set_limit(self, board: Board, watts: float) -> None: ...

    def lock_clock(self, board: Board, clock_mhz: int) -> None: ...

    def reset_clock(self, board: Board) -> None: ...

    def set_persistence(self, board: Board, *, is_on: bool) -> None: ...


def choose_way(environment: Mapping[str, str]) -> str:
    """The way that the environment names, as it is written in a journal."""
    if command := environment.get(COMMAND_VARIABLE):
        return f"command:{command}"
    if path := environment.get(SOCKET_VARIABLE):
        return f"zeusd:{path}"
    return "nvml"


def open_way(text: str) -> Way:
    """The way that `choose_way` wrote."""
    kind, _, rest = text.partition(":")
    if kind == "zeusd":
        return ZeusdWay(rest, token=os.environ.get(TOKEN_VARIABLE))
    if kind == "command":
        return CommandWay(rest)
    return DriverWay()


class DriverWay:
    """NVML's own setters."""

    def set_limit(self, board: Board, watts: float) -> None:
        board.set_limit(watts)

    def lock_clock(self, board: Board, clock_mhz: int) -> None:
        board.lock_clock(clock_mhz)

    def reset_clock(self, board: Board) -> None:
        board.reset_clock()

    def set_persistence(self, board: Board, *, is_on: bool) -> None:
        board.set_persistence(is_on=is_on)


class ZeusdWay:
    """The HTTP interface of zeusd on a unix socket, as zeus's own client speaks it."""

    def __init__(self, path: str, *, token: str | None) -> None:
        self._path = path
        self._token = token

    def set_limit(self, board: Board, watts: float) -> None:
        self._post("set_power_limit", board, power_limit_mw=str(round(watts * 1000)))

    def lock_clock(self, board: Board, clock_mhz: int) -> None:
        clock = str(clock_mhz)
        self._post("set_gpu_locked_clocks", board, min_clock_mhz=clock, max_clock_mhz=clock)

    def reset_clock(self, board: Board) -> None:
        self._post("reset_gpu_locked_clocks", board)

    def set_persistence(self, board: Board, *, is_on: bool) -> None:
        self._post("set_persistence_mode", board, enabled="true" if is_on else "false")

    def _post(self, what: str, board: Board, **values: str) -> None:
        query = urlencode({"gpu_ids": str(board.index), **values, "block": "true"})
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        connection = _UnixConnection(self._path)
        try:
            connection.request("POST", f"/gpu/{what}?{query}", headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            raise ControlError(
                f"zeusd at {self._path} does not answer: {error}",
                hint=f"start zeusd, correct {SOCKET_VARIABLE}, or unset it to use the driver itself",
            ) from error
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise ControlError(
                f"zeusd refuses {what} on GPU {board.index}: {answer.status} {text}",
                hint=f"zeusd has to run as root; where it asks for a token, set {TOKEN_VARIABLE}",
            )


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_WITHIN_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_WITHIN_S)
        self.sock.connect(self._path)


class CommandWay:
    """A command template: power limits only."""

    def __init__(self, template: str) -> None:
        self._template = template

    def set_limit(self, board: Board, watts: float) -> None:
        values = {"uuid": board.uuid, "index": board.index, "watts": f"{watts:g}"}
        try:
            argv = [word.format(**values) for word in shlex.split(self._template)]
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=ANSWER_WITHIN_S
            )
        except (OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired) as error:
            raise ControlError(
                f"{COMMAND_VARIABLE} `{self._template}` does not run: {error}",
                hint="it may use {uuid}, {index} and {watts}: sudo -n nvidia-smi -i {uuid} -pl {watts}",
            ) from error
        if done.returncode != 0:
            words = (done.stderr or done.stdout).strip().splitlines()
            raise ControlError(
                f"`{shlex.join(argv)}` ended with exit code {done.returncode}" + (f": {words[-1]}" if words else ""),
                hint=f"try it by hand; it comes from {COMMAND_VARIABLE}",
            )

    def lock_clock(self, board: Board, clock_mhz: int) -> None:
        raise ControlError(
            f"{COMMAND_VARIABLE} sets power limits: GPU {board.index} is not locked to {clock_mhz} MHz",
            hint="leave out --sm-clock, or run as root without the variable",
        )

    def reset_clock(self, board: Board) -> None:
        self.lock_clock(board, 0)

    def set_persistence(self, board: Board, *, is_on: bool) -> None:
        raise ControlError(
            f"the persistence mode of GPU {board.index} was {json.dumps(is_on)} and has been changed",
            hint=f"nvidia-smi -i {board.uuid} -pm {int(is_on)}",
        )
