"""Signs of life: only in silence, and never after the block."""

import asyncio

from seamlessflow.data_plane.serving.signs_of_life import SignsOfLife

EVERY_S = 0.05


def _signs(sent: list[bytes], every_s: float = EVERY_S) -> SignsOfLife:
    async def send(chunk: bytes) -> None:
        sent.append(chunk)

    return SignsOfLife(send, lambda: b"sign", every_s)


async def test_a_silent_stream_shows_signs_of_life() -> None:
    sent: list[bytes] = []
    signs = _signs(sent)
    async with signs:
        await signs.write(b"chunk")
        await asyncio.sleep(2.5 * EVERY_S)
    num_sent = len(sent)
    await asyncio.sleep(2 * EVERY_S)
    assert sent[:2] == [b"chunk", b"sign"]
    assert len(sent) == num_sent


async def test_a_stream_that_speaks_shows_none() -> None:
    sent: list[bytes] = []
    signs = _signs(sent, every_s=10 * EVERY_S)
    async with signs:
        for _ in range(24):
            await asyncio.sleep(EVERY_S / 2)
            await signs.write(b"chunk")
    assert set(sent) == {b"chunk"}
    assert len(sent) == 24
