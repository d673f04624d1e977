from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_skills.executor.channel import (
    Channel,
    ChannelError,
    MalformedFrame,
    PeerGone,
    PeerSilent,
)

PREFIX = struct.Struct("<4sIQ")


@contextlib.contextmanager
def raw_peer() -> Iterator[tuple[socket.socket, Channel]]:
    """A socket that writes whatever it likes, and the channel that reads it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    channel = Channel(theirs)
    try:
        yield ours, channel
    finally:
        ours.close()
        channel.close()


@contextlib.contextmanager
def channels() -> Iterator[tuple[Channel, Channel]]:
    a, b = Channel.pair()
    try:
        yield a, b
    finally:
        a.close()
        b.close()


def frame(header: bytes, blob: bytes = b"", magic: bytes = b"KSF1") -> bytes:
    return PREFIX.pack(magic, len(header), len(blob)) + header + blob


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(message=st.dictionaries(st.text().filter(lambda key: key != "fds"), JSON, max_size=4), blob=st.binary(max_size=200))  # fmt: skip
def test_a_frame_arrives_as_it_was_sent(message: dict[str, object], blob: bytes) -> None:
    with channels() as (a, b):
        a.send(message, [blob])
        assert b.receive(5) == (message, bytearray(blob), [])


def test_a_blob_of_many_chunks_arrives_whole() -> None:
    parts = [os.urandom(1000), b"", os.urandom(40 << 20)]
    with channels() as (a, b):
        sender = threading.Thread(target=a.send, args=({"op": "x"}, parts))
        sender.start()
        _, blob, _ = b.receive(20)
        sender.join()
        assert blob == b"".join(parts)


def test_a_file_descriptor_passes() -> None:
    with channels() as (a, b):
        read, write = os.pipe()
        a.send({}, fds=[write])
        os.close(write)
        _, _, (received,) = b.receive(5)
        os.write(received, b"through")
        os.close(received)
        assert os.read(read, 10) == b"through"
        os.close(read)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame(b"{}", magic=b"NOPE"), id="other magic"),
        pytest.param(PREFIX.pack(b"KSF1", (16 << 20) + 1, 0), id="header too large"),
        pytest.param(PREFIX.pack(b"KSF1", 2, (2 << 30) + 1) + b"{}", id="blob too large"),
        pytest.param(frame(b"not json"), id="no JSON"),
        pytest.param(frame(b"[1]"), id="no object"),
        pytest.param(frame(b"\xff\xfe\xfd"), id="no text"),
        pytest.param(frame(b"[" * 100_000), id="nested too deep"),
        pytest.param(frame(b'{"a": 1' + b"0" * 10_000 + b"}"), id="a number of 10,000 digits"),
        pytest.param(frame(b'{"log": "\\ud800"}'), id="half of a surrogate pair"),
        pytest.param(frame(b'{"fds": 9}'), id="too many descriptors"),
        pytest.param(frame(b'{"fds": true}'), id="descriptors that are no number"),
        pytest.param(frame(b'{"fds": 1}') + b"F", id="descriptors that do not come"),
    ],
)
def test_what_is_no_frame_is_malformed(data: bytes) -> None:
    with raw_peer() as (peer, channel):
        peer.sendall(data)
        with pytest.raises(MalformedFrame):
            channel.receive(5)


@pytest.mark.parametrize("data", [b"", b"KSF1", frame(b"{}", b"12345")[:-1]])
def test_a_closed_peer_is_gone(data: bytes) -> None:
    with raw_peer() as (peer, channel):
        peer.sendall(data)
        peer.close()
        with pytest.raises(PeerGone):
            channel.receive(5)


@pytest.mark.parametrize("data", [b"", b"KSF1", frame(b'{"fds": 1}')])
def test_an_unfinished_frame_is_silence(data: bytes) -> None:
    with raw_peer() as (peer, channel):
        peer.sendall(data)
        with pytest.raises(PeerSilent):
            channel.receive(0.05)


def test_a_prefix_alone_takes_no_memory() -> None:
    with raw_peer() as (peer, channel):
        peer.sendall(PREFIX.pack(b"KSF1", 2, 2 << 30) + b"{}")
        with pytest.raises(PeerSilent):
            channel.receive(0.2)


def test_sending_to_a_closed_peer_says_so() -> None:
    with channels() as (a, b):
        b.close()
        with pytest.raises(PeerGone):
            a.send({"op": "x"})


def test_sending_to_a_peer_that_does_not_read_ends_in_time() -> None:
    with channels() as (a, _), pytest.raises(PeerSilent):
        a.send({}, [bytes(16 << 20)], timeout_s=0.2)


def test_text_beyond_the_first_plane_is_well_formed() -> None:
    with channels() as (a, b):
        a.send({"log": "𝟜🂡"})
        assert b.receive(5)[0] == {"log": "𝟜🂡"}


def test_descriptors_that_nobody_asked_for_are_closed() -> None:
    with channels() as (a, b):
        before = len(list(Path("/proc/self/fd").iterdir()))
        with Path(os.devnull).open() as file:
            for _ in range(4):
                b.send({}, fds=[file.fileno()] * 8)
                a.request({}, timeout_s=5)
        assert len(list(Path("/proc/self/fd").iterdir())) == before


@given(cut=st.integers(0, 80), at=st.integers(0, 80), byte=st.integers(0, 255))
def test_a_frame_that_was_cut_or_changed_raises_nothing_but_channel_errors(
    cut: int, at: int, byte: int
) -> None:
    data = bytearray(frame(b'{"outputs": [{"type": "Tensor", "shape": [3]}]}', b"12345678"))
    data[at % len(data)] = byte
    with raw_peer() as (peer, channel):
        peer.sendall(bytes(data[: len(data) - cut % len(data)]))
        peer.close()
        with contextlib.suppress(ChannelError):
            message, _, fds = channel.receive(5)
            json.dumps(message, ensure_ascii=False).encode()
            assert fds == []


@given(data=st.binary(max_size=64) | st.binary(max_size=48).map(lambda tail: b"KSF1" + tail))
def test_random_bytes_raise_nothing_but_channel_errors(data: bytes) -> None:
    with raw_peer() as (peer, channel):
        peer.sendall(data)
        peer.close()
        with pytest.raises(ChannelError):
            while True:
                channel.receive(5)


@given(header=JSON | st.fixed_dictionaries({"fds": JSON}), blob=st.binary(max_size=8))
def test_random_headers_raise_nothing_but_channel_errors(header: object, blob: bytes) -> None:
    with raw_peer() as (peer, channel):
        peer.sendall(frame(json.dumps(header).encode(), blob))
        peer.close()
        with contextlib.suppress(ChannelError):
            message, data, fds = channel.receive(5)
            assert isinstance(message, dict)
            assert (bytes(data), fds) == (blob, [])
