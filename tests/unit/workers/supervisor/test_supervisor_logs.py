"""Output of children: offsets that survive rotation, one log a phase, the last line for reasons."""

import asyncio
from pathlib import Path
from uuid import UUID

import aiohttp

from seamlessflow_workers.process.logs import OutputLog, RotatedFile
from seamlessflow_workers.supervisor.log_shipper import LogShipper
from tests.fakes.fake_control_plane import FakeControlPlane

JOB, PHASE, NEXT_PHASE = UUID(int=1), UUID(int=2), UUID(int=3)


def read_all(file: RotatedFile, offset: int, num_bytes: int = 7) -> tuple[int, bytes]:
    first, collected = -1, b""
    while offset < file.end:
        start, chunk = file.read(offset, num_bytes)
        first = start if first < 0 else first
        collected, offset = collected + chunk, start + len(chunk)
    return first, collected


def test_offsets_count_from_the_beginning_through_rotations(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "log", max_file_bytes=10)
    for line in (b"aaaa\n", b"bbbb\n", b"cccc\n"):
        file.write(line)
    assert file.end == 15
    assert read_all(file, 0) == (0, b"aaaa\nbbbb\ncccc\n")
    assert read_all(file, 12) == (12, b"cc\n")
    file.close()


def test_head_and_newest_outlive_rotations_and_disk_use_is_bounded(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "log", max_file_bytes=10, head_bytes=7)
    for number in range(100):
        file.write(b"%04d\n" % number)
    assert file.read(0, 100) == (0, b"0000\n00")
    assert file.read(5, 100) == (5, b"00")
    assert read_all(file, 7) == (480, b"0096\n0097\n0098\n0099\n")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 27
    file.close()


def test_a_log_goes_on_where_a_former_supervisor_left_it(tmp_path: Path) -> None:
    former = RotatedFile(tmp_path / "log")
    former.write(b"before\n")
    former.close()
    file = RotatedFile(tmp_path / "log")
    file.write(b"after\n")
    assert read_all(file, 0) == (0, b"before\nafter\n")
    file.close()


def test_what_no_phase_owned_opens_the_next_one(tmp_path: Path) -> None:
    log = OutputLog(tmp_path, role="train", job_id=JOB)
    log.write(b"loading\n")
    log.bind(PHASE)
    log.write(b"step 1\n")
    log.unbind()
    log.write(b"resting\n")
    log.bind(NEXT_PHASE)
    log.write(b"step 2\n")
    log.close()
    assert (tmp_path / f"train-{PHASE}.log").read_bytes() == b"loading\nstep 1\n"
    assert (tmp_path / f"train-{NEXT_PHASE}.log").read_bytes() == b"resting\nstep 2\n"
    assert (tmp_path / f"train-{JOB}.log").read_bytes() == b"loading\nresting\n"


def test_the_last_line_is_kept_for_reasons(tmp_path: Path) -> None:
    log = OutputLog(tmp_path, role="train", job_id=JOB)
    log.write(b"Traceback\nValueError: bad \xff\n\n")
    assert log.last_line == "ValueError: bad \ufffd"
    log.close()


def test_the_last_line_may_come_in_pieces(tmp_path: Path) -> None:
    log = OutputLog(tmp_path, role="train")
    for piece in (b"step 1\nValueErr", b"or: ", b"no model", b"\n"):
        log.write(piece)
    assert log.last_line == "ValueError: no model"
    log.write(b"bye")
    assert log.last_line == "bye"
    log.close()


async def test_a_log_that_outgrew_its_files_unheard_is_shipped_with_its_gap(tmp_path: Path) -> None:
    plane = await FakeControlPlane.start()
    file = RotatedFile(tmp_path / "log", max_file_bytes=10, head_bytes=7)
    async with aiohttp.ClientSession() as session:
        shipper = LogShipper(session, control_plane_url=plane.url, token="t")
        for number in range(100):
            file.write(b"%04d\n" % number)
        shipper.follow(PHASE, stream="train", file=file)
        async with asyncio.timeout(20):
            await shipper.ship_all()
    await plane.stop()
    file.close()

    assert plane.logs[PHASE] == b"0000\n00" + b"\0" * 473 + b"0096\n0097\n0098\n0099\n"
