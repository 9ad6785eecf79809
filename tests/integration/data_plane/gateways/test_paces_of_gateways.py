"""What a gateway tells of full engines with its signs of life, in its row."""

from uuid import UUID

import psycopg

from seamlessflow.data_plane.gateways.membership import Membership
from seamlessflow.data_plane.store.gateways import Paces

PHASE = UUID(int=7)


async def test_a_sign_of_life_tells_paces_when_they_are_due_and_keeps_them_otherwise(
    migrated_database_url: str,
) -> None:
    due: list[Paces | None] = [{PHASE: (1234.4, 56.78)}, None, {}]
    membership = Membership("http://a", "http://a", paces=lambda: due.pop(0))
    async with await psycopg.AsyncConnection.connect(migrated_database_url, autocommit=True) as connection:
        membership.set(await membership.join(connection))
        shown = []
        for _ in range(len(due) + 1):
            cursor = await connection.execute("SELECT paces FROM trajectory_gateway")
            shown += await cursor.fetchall()
            if due:
                membership.set(await membership.sign(connection))
    told = {str(PHASE): [1234, 56.8]}
    assert shown == [(None,), (told,), (told,), ({},)]
