"""What a gateway tells of full engines with its signs of life, in its row."""

from uuid import UUID

import psycopg

from seamlessflow.core.placement.engine_key import EngineKey
from seamlessflow.data_plane.gateways.membership import Membership
from seamlessflow.data_plane.store.gateways import Paces

FIRST, SECOND = EngineKey(UUID(int=7)), EngineKey(UUID(int=7), 1)  # of one phase


async def test_a_sign_of_life_tells_paces_when_they_are_due_and_keeps_them_otherwise(
    migrated_database_url: str,
) -> None:
    due: list[Paces | None] = [{FIRST: (1234.4, 56.78), SECOND: (2.0, 3.0)}, None, {}]
    membership = Membership("http://a", "http://a", paces=lambda: due.pop(0))
    async with await psycopg.AsyncConnection.connect(migrated_database_url, autocommit=True) as connection:
        membership.set(await membership.join(connection))
        shown = []
        for _ in range(len(due) + 1):
            cursor = await connection.execute("SELECT paces FROM trajectory_gateway")
            shown += await cursor.fetchall()
            if due:
                membership.set(await membership.sign(connection))
    told = {str(FIRST): [1234, 56.8], str(SECOND): [2, 3.0]}
    assert shown == [(None,), (told,), (told,), ({},)]
