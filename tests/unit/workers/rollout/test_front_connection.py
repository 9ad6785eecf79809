"""What a front's connection makes of bytes: the same however they are split, and nothing of what is no request."""

import itertools
from collections.abc import Callable, Sequence
from http import HTTPStatus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow_workers.rollout import front_connection
from seamlessflow_workers.rollout.front_connection import FrontConnection, Request

EOF = b"<eof>"
MAX_BODY_BYTES = 1000
HOST = b"Host: front\r\n"


class FakeTransport:
    """Keeps what is written; `EOF` stands for the end."""

    def __init__(self) -> None:
        self.written = b""
        self.is_paused = self.is_closed = self.is_aborted = False
        self.num_unread = 0

    def write(self, data: bytes) -> None:
        assert EOF not in self.written, "written after the end"
        self.written += data

    def write_eof(self) -> None:
        assert EOF not in self.written, "ended twice"
        self.written += EOF

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        return self.num_unread


class Echo:
    """Answers with what it was asked, at once or when `answer_next` is called."""

    max_body_bytes = MAX_BODY_BYTES

    def __init__(self, *, is_late: bool) -> None:
        self._is_late = is_late
        self.handled: list[bytes] = []
        self._open: tuple[FrontConnection, bytes] | None = None

    def refusal_of(self, request: Request) -> bytes | None:
        return b"<refused>" if request.target == b"/refused" else None

    def malformed(self, status: HTTPStatus) -> bytes:
        return b"<%d>" % status

    def handle(self, connection: FrontConnection, request: Request) -> None:
        headers = b",".join(b"%b=%b" % item for item in sorted(request.headers.items()))
        answer = b"<%b %b %b %b>" % (request.method, request.target, headers, request.body)
        self.handled.append(answer)
        if self._is_late:
            assert self._open is None, "two requests at once"
            self._open = (connection, answer)
        else:
            connection.answer(answer)

    def answer_next(self) -> bool:
        if self._open is None:
            return False
        (connection, answer), self._open = self._open, None
        connection.answer(answer)
        return True


class Scene:
    def __init__(self, *, is_late: bool = False) -> None:
        self.echo, self.transport = Echo(is_late=is_late), FakeTransport()
        self.connections: set[FrontConnection] = set()
        self.connection = FrontConnection(self.echo, self.connections)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def feed(self, *pieces: bytes) -> bytes:
        """Deliver pieces as a socket does: only while reading is not paused; return what was written."""
        for piece in pieces:
            while self.transport.is_paused and self.echo.answer_next():
                pass
            if not self.transport.is_closed:
                self.connection.data_received(piece)
        while self.echo.answer_next():
            pass
        return self.transport.written


def answers(pieces: Sequence[bytes], *, is_late: bool = False) -> bytes:
    return Scene(is_late=is_late).feed(*pieces)


def pieces_of(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def chunked(body: bytes, sizes: Sequence[int], trailer: bytes = b"") -> bytes:
    parts, rest = [], body
    for size in sizes:
        part, rest = rest[:size], rest[size:]
        parts += [b"%x\r\n%b\r\n" % (len(part), part)] if part else []
    parts += [b"%x;name=value\r\n%b\r\n" % (len(rest), rest)] if rest else []
    return b"".join([*parts, b"0\r\n", trailer, b"\r\n"])


PATHS = st.sampled_from([b"/a", b"/long/er?x=1", b"/refused"])
BODIES = st.binary(max_size=60)
CUTS = st.lists(st.integers(0, 10_000), max_size=12)


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Return the bytes of a request, and the answer to it."""
    path, body, kind = draw(PATHS), draw(BODIES), draw(st.sampled_from(["none", "length", "chunks"]))
    if kind == "none":
        method, body, lines, sent = b"GET", b"", b"", b""
    elif kind == "length":
        method, lines, sent = b"POST", b"CONTENT-Length:  %d \r\n" % len(body), body
    else:
        method, lines = b"PUT", b"Transfer-Encoding: Chunked\r\n"
        trailer = draw(st.sampled_from([b"", b"Authorization: later\r\n", b"Host: b\r\n"]))
        sent = chunked(body, draw(st.lists(st.integers(1, 20), max_size=4)), trailer)
    data = b"%b %b HTTP/1.1\r\n%b%b\r\n%b" % (method, path, HOST, lines, sent)
    names = {"none": b"", "length": b"content-length=%d," % len(body), "chunks": b""}[kind]
    last = b",transfer-encoding=Chunked" if kind == "chunks" else b""
    answer = b"<%b %b %bhost=front%b %b>" % (method, path, names, last, body)
    return data, b"<refused>" if path == b"/refused" else answer


MALFORMED = [
    b"\x16\x03\x01 this is TLS",
    b"GET /a HTTP/1.1\nHost: front\n\n",
    b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /a HTTP/1.1\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost:\r\n\r\n",
    b"GET /a HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    b"GET /a HTTP/1.1\r\n" + HOST + b"A: b\r\n c\r\n\r\n",
    b"GET /a HTTP/1.1\r\n" + HOST + b"A : b\r\n\r\n",
    b"GET /a HTTP/1.1\r\n" + HOST + b"A: \x00\r\n\r\n",
    b"GET /a HTTP/1.1\r\n" + HOST + b"Authorization: a\r\nauthorization: b\r\n\r\n",
    b"GET /a HTTP/1.1\r\n" + HOST + b"X-SeamlessFlow-Job: a\r\nX-SeamlessFlow-Job: a\r\n\r\n",
    b"GET /a HTTP/1.1\r\n" + HOST + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]
SMUGGLED = [
    b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    b"Content-Length: 3\r\nContent-Length: 30\r\n\r\nabc",
    b"Content-Length: 3, 3\r\n\r\nabc",
    b"Content-Length: +3\r\n\r\nabc",
    b"Content-Length: 0x3\r\n\r\nabc",
    b"Content-Length: 99999999999999999999999\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n1\r\nXX\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n1\nX\n0\n\n",
    b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
]


@given(st.lists(requests(), max_size=5), CUTS, st.booleans())
def test_requests_are_answered_in_order_however_their_bytes_are_split(
    asked: list[tuple[bytes, bytes]], cuts: list[int], is_late: bool
) -> None:
    data, expected = b"".join(one[0] for one in asked), b"".join(one[1] for one in asked)
    assert answers(pieces_of(data, cuts), is_late=is_late) == expected


@given(st.lists(requests(), max_size=3), st.sampled_from(MALFORMED), requests(), CUTS, st.booleans())
def test_what_follows_something_malformed_reaches_nobody(
    asked: list[tuple[bytes, bytes]],
    malformed: bytes,
    after: tuple[bytes, bytes],
    cuts: list[int],
    is_late: bool,
) -> None:
    data = b"".join(one[0] for one in asked) + malformed + after[0]
    expected = b"".join(one[1] for one in asked) + b"<400>" + EOF
    assert answers(pieces_of(data, cuts), is_late=is_late) == expected


@pytest.mark.parametrize("smuggled", SMUGGLED)
@given(CUTS)
def test_a_body_whose_end_two_programs_could_see_in_two_places_is_refused(
    smuggled: bytes, cuts: list[int]
) -> None:
    data = b"POST /a HTTP/1.1\r\n" + HOST + smuggled + b"GET /hidden HTTP/1.1\r\n" + HOST + b"\r\n"
    scene = Scene()
    assert scene.feed(*pieces_of(data, cuts)) == b"<400>" + EOF
    assert scene.echo.handled == []


@given(CUTS)
def test_a_body_in_an_unknown_encoding_is_refused(cuts: list[int]) -> None:
    data = b"POST /a HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
    assert answers(pieces_of(data, cuts)) == b"<501>" + EOF


@settings(max_examples=300)
@given(st.lists(requests(), min_size=1, max_size=3), st.data(), CUTS, st.booleans())
def test_damaged_bytes_have_the_same_answers_however_they_are_split(
    asked: list[tuple[bytes, bytes]], data: st.DataObject, cuts: list[int], is_late: bool
) -> None:
    damaged = bytearray(b"".join(one[0] for one in asked))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged)))
        removed = data.draw(st.integers(0, 3))
        inserted = data.draw(st.sampled_from([b"", b"\r", b"\n", b"\r\n", b":", b" ", b"0", b"\x00", b"9"]))
        damaged[place : place + removed] = inserted
    whole = answers([bytes(damaged)])
    assert answers(pieces_of(bytes(damaged), cuts), is_late=is_late) == whole


@given(st.binary(max_size=200), CUTS)
def test_noise_has_no_answer_but_an_error(noise: bytes, cuts: list[int]) -> None:
    scene = Scene()
    written = scene.feed(*pieces_of(noise, cuts))
    assert scene.echo.handled == []
    assert written in (b"", b"<400>" + EOF, b"<505>" + EOF)


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/2.0"])
def test_another_version_of_http_is_refused(version: bytes) -> None:
    assert answers([b"GET /a " + version + b"\r\n" + HOST + b"\r\n"]) == b"<505>" + EOF


@given(CUTS)
def test_a_client_may_say_that_its_request_is_the_last(cuts: list[int]) -> None:
    last = b"GET /a HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    expected = b"<GET /a connection=close,host=front >" + EOF
    assert answers(pieces_of(last, cuts)) == expected
    assert answers(pieces_of(last + last, cuts), is_late=True) == expected


@given(CUTS)
def test_a_body_may_be_as_large_as_allowed_and_no_larger(cuts: list[int]) -> None:
    for size, expected in ((MAX_BODY_BYTES, b"<POST"), (MAX_BODY_BYTES + 1, b"<413>" + EOF)):
        body = b"x" * size
        head = b"POST /a HTTP/1.1\r\n" + HOST
        told = head + b"Content-Length: %d\r\n\r\n" % size + body
        untold = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body, [300] * 3)
        for data in (told, untold):
            assert answers(pieces_of(data, cuts)).startswith(expected)


def test_a_length_that_is_too_large_is_refused_before_the_body_comes() -> None:
    head = b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1)
    assert answers([head]) == b"<413>" + EOF


def _many_headers(num_bytes: int) -> bytes:
    return b"".join(b"name-%d: %b\r\n" % (number, b"x" * 900) for number in range(num_bytes // 900))


@pytest.mark.parametrize(
    "data",
    [
        b"GET /a HTTP/1.1\r\n" + HOST + _many_headers(front_connection.MAX_HEAD_BYTES + 900) + b"\r\n",
        b"GET /" + b"a" * 2 * front_connection.MAX_HEAD_BYTES,
        b"GET /a HTTP/1.1\r\nA: " + b"a" * 2 * front_connection.MAX_HEAD_BYTES,
        b"\r\n" * 2 * front_connection.MAX_HEAD_BYTES,
        b"POST /a HTTP/1.1\r\n"
        + HOST
        + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: "
        + b"a" * 2 * front_connection.MAX_HEAD_BYTES,
    ],
    ids=["headers", "target", "header", "empty lines", "trailer"],
)
@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_a_head_without_measure_is_refused(data: bytes, size: int) -> None:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert answers([*pieces, b"\r\n\r\n"]) == b"<431>" + EOF


def test_a_refused_request_is_answered_after_its_body_which_is_not_kept() -> None:
    scene = Scene()
    head = b"POST /refused HTTP/1.1\r\n" + HOST + b"Content-Length: 6\r\n\r\n"
    assert scene.feed(head, b"abc") == b""
    assert scene.connection._parts == []
    assert scene.feed(b"def") == b"<refused>"
    assert scene.feed(b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n") == b"<refused><GET /a host=front >"


def test_a_client_that_expects_it_is_told_to_go_on() -> None:
    scene = Scene()
    head = HOST + b"Content-Length: 1\r\nExpect: 100-Continue\r\n\r\n"
    assert scene.feed(b"POST /a HTTP/1.1\r\n" + head) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert scene.feed(b"x").endswith(b" x>")
    assert answers([b"POST /refused HTTP/1.1\r\n" + head]) == b"<refused>" + EOF
    assert answers([b"POST /a HTTP/1.1\r\n" + head.replace(b"100", b"200")]) == b"<417>" + EOF


def test_reading_stops_while_a_request_waits_behind_another() -> None:
    scene = Scene(is_late=True)
    request = b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n"
    scene.connection.data_received(request)
    seen = [scene.transport.is_paused]
    scene.connection.data_received(request + request)
    seen += [scene.transport.is_paused]
    for _ in range(2):
        assert scene.echo.answer_next()
        seen += [scene.transport.is_paused]
    assert seen == [False, True, True, False]
    assert len(scene.echo.handled) == 3


def test_no_request_is_taken_while_the_client_has_not_read_the_last_answer() -> None:
    scene = Scene()
    request = b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n"
    scene.connection.pause_writing()
    scene.connection.data_received(request)
    assert scene.echo.handled == []
    assert scene.transport.is_paused
    scene.connection.resume_writing()
    assert len(scene.echo.handled) == 1
    assert not scene.transport.is_paused


def test_many_requests_at_once_need_no_deep_stack() -> None:
    request = b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n"
    scene = Scene()
    scene.feed(request * 5000)
    assert len(scene.echo.handled) == 5000


def test_whoever_answers_hears_once_that_the_client_has_left() -> None:
    scene = Scene(is_late=True)
    scene.connection.data_received(b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n")
    left: list[bool] = []
    scene.connection.on_left = lambda: left.append(True)
    scene.connection.connection_lost(None)
    assert left == [True]
    assert scene.connections == set()
    scene.connection.answer(b"too late")
    assert scene.transport.written == b""


def test_one_connection_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_connection, "MAX_CONNECTIONS", 1)
    scene = Scene()
    second, transport = FrontConnection(scene.echo, scene.connections), FakeTransport()
    second.connection_made(transport)  # type: ignore[arg-type]
    second.data_received(b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n")
    assert transport.written == b"<503>" + EOF
    assert scene.feed(b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n").startswith(b"<GET")


def _late(scene: Scene) -> None:
    scene.feed(b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n")


def _slow(scene: Scene) -> None:
    scene.connection.pause_writing()
    scene.transport.num_unread = 1 << 20


def _reads_too_little(scene: Scene) -> None:
    _slow(scene)
    scene.transport.num_unread -= front_connection.MIN_READ_BYTES // 100


@pytest.mark.parametrize(
    "prepare,limit_s,written,is_closed",
    [
        (lambda scene: None, front_connection.HEAD_S, b"<408>" + EOF, False),
        (lambda scene: scene.feed(b"GET /a HT"), front_connection.HEAD_S, b"<408>" + EOF, False),
        (
            lambda scene: scene.feed(b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\nabc"),
            front_connection.BODY_S,
            b"<408>" + EOF,
            False,
        ),
        (_late, front_connection.IDLE_S, b"<GET /a host=front >", True),
        (_slow, front_connection.DRAIN_S, b"", True),
        (lambda scene: scene.feed(b"\x00"), front_connection.LINGER_S, b"<400>" + EOF, True),
    ],
    ids=["nothing", "head", "body", "idle", "drain", "linger"],
)
def test_a_client_that_keeps_others_waiting_is_cut_off(
    prepare: Callable[[Scene], object], limit_s: float, written: bytes, is_closed: bool
) -> None:
    scene = Scene()
    prepare(scene)
    before = scene.transport.written
    scene.connection.look(1.0)  # it sees what the connection waits for
    for _ in range(int(limit_s)):
        scene.connection.look(1.0)
        assert (scene.transport.written, scene.transport.is_closed) == (before, False)
    scene.connection.look(1.0)
    assert (scene.transport.written, scene.transport.is_closed) == (written, is_closed)


def test_a_client_that_reads_its_answer_slowly_is_waited_for() -> None:
    scene = Scene()
    _slow(scene)
    for _ in range(200):
        scene.connection.look(1.0)
        scene.transport.num_unread -= front_connection.MIN_READ_BYTES
    assert not scene.transport.is_closed
    for _ in range(int(front_connection.DRAIN_S) + 2):
        scene.connection.look(1.0)
        scene.transport.num_unread -= 1
    assert scene.transport.is_aborted


def test_nobody_is_cut_off_whose_request_is_being_answered() -> None:
    scene = Scene(is_late=True)
    scene.connection.data_received(b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n")
    for _ in range(1000):
        scene.connection.look(1.0)
    assert scene.feed() == b"<GET /a host=front >"
