"""Framed, checked messages between the processes of the judge, over a Unix socket.

A frame is magic, header length, blob length, header (JSON object), blob (raw bytes). Nothing is ever unpickled, and
a frame that does not parse raises `MalformedFrame`: the other side may be foreign code.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PREFIX = struct.Struct("<4sIQ")
_MAGIC = b"KSF1"
_MAX_HEADER_BYTES = 16 << 20
_MAX_BLOB_BYTES = 2 << 30
"""On the CPU tensors cross as bytes, and the interpreter takes none of more than some 30 MB."""
_CHUNK_BYTES = 16 << 20
"""Memory is taken as bytes arrive: a prefix alone must not make the reader allocate what it announces."""


class ChannelError(Exception):
    """Base of everything that can go wrong on a channel."""


class MalformedFrame(ChannelError):
    """The other side sent something that is not a frame."""


class PeerGone(ChannelError):
    """The other side closed its end: it exited or crashed."""


class PeerSilent(ChannelError):
    """No complete frame came within the time allowed."""


class Channel:
    """One end of a socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    @staticmethod
    def pair() -> tuple[Channel, Channel]:
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return Channel(a), Channel(b)

    @classmethod
    def from_fd(cls, fd: int) -> Channel:
        return cls(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(
        self,
        message: Mapping[str, Any],
        blob: Sequence[bytes | memoryview] = (),
        fds: Sequence[int] = (),
        timeout_s: float | None = None,
    ) -> None:
        """Send one frame; `fds` are duplicated into the other process.

        Raises:
            PeerGone: the other side is closed.
            PeerSilent: the other side does not read: a part of the frame was not taken within the time allowed.
        """
        header = json.dumps({**message, "fds": len(fds)}).encode()
        size = sum(len(part) for part in blob)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(_PREFIX.pack(_MAGIC, len(header), size) + header)
            for part in blob:
                self._socket.sendall(part)
            if fds:
                socket.send_fds(self._socket, [b"F"], list(fds))
        except TimeoutError as error:
            raise PeerSilent("the other side does not read") from error
        except OSError as error:
            raise PeerGone(str(error)) from error

    def receive(
        self, timeout_s: float | None = None
    ) -> tuple[dict[str, Any], bytearray, list[int]]:
        """Return (message, blob, file descriptors) of the next frame.

        Raises:
            PeerGone, PeerSilent, MalformedFrame: as their names say.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        magic, header_size, blob_size = _PREFIX.unpack(self._read(_PREFIX.size, deadline))
        if magic != _MAGIC or header_size > _MAX_HEADER_BYTES or blob_size > _MAX_BLOB_BYTES:
            raise MalformedFrame("bad frame prefix")
        message = _parse(self._read(header_size, deadline))
        count = message.pop("fds", 0)
        blob = self._read(blob_size, deadline)
        return message, blob, self._read_fds(count, deadline) if count else []

    def request(
        self,
        message: Mapping[str, Any],
        blob: Sequence[bytes | memoryview] = (),
        *,
        timeout_s: float | None = None,
        fds: Sequence[int] = (),
    ) -> tuple[dict[str, Any], bytearray]:
        """Send a frame and return the (message, blob) that answers it."""
        self.send(message, blob, fds, timeout_s)
        answer, data, unasked = self.receive(timeout_s)
        for fd in unasked:
            os.close(fd)
        return answer, data

    def _read(self, size: int, deadline: float | None) -> bytearray:
        data = bytearray()
        while len(data) < size:
            chunk = bytearray(min(size - len(data), _CHUNK_BYTES))
            view, filled = memoryview(chunk), 0
            while filled < len(chunk):
                with self._waiting(deadline):
                    got = self._socket.recv_into(view[filled:])
                if got == 0:
                    raise PeerGone("the process ended without an answer")
                filled += got
            data += chunk
        return data

    @contextlib.contextmanager
    def _waiting(self, deadline: float | None) -> Iterator[None]:
        """Set the socket's timeout from the deadline, and name what goes wrong in the wait."""
        try:
            # zero would mean non-blocking, so a passed deadline still waits a millisecond
            left = None if deadline is None else max(deadline - time.monotonic(), 0.001)
            self._socket.settimeout(left)
            yield
        except TimeoutError as error:
            raise PeerSilent("no answer in time") from error
        except OSError as error:
            raise PeerGone(str(error)) from error

    def _read_fds(self, count: Any, deadline: float | None) -> list[int]:
        if type(count) is not int or not 0 < count <= 8:
            raise MalformedFrame("bad number of file descriptors")
        with self._waiting(deadline):
            data, fds, _, _ = socket.recv_fds(self._socket, 1, count)
        if data != b"F" or len(fds) != count:
            for fd in fds:
                os.close(fd)
            raise MalformedFrame("file descriptors did not arrive")
        return list(fds)


def _parse(header: bytearray) -> dict[str, Any]:
    try:
        message = json.loads(header)
        if b"\\u" in header:
            # half of a pair is text in JSON and nowhere else: the first file it is written to would raise
            json.dumps(message, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise MalformedFrame(f"header is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise MalformedFrame("header is not an object")
    return message
