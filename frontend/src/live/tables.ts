// Tables of rows by key, into which snapshots and deltas are merged. Pure; an unchanged table stays the same object, so
// that its dependants are not rendered again.

export type Table<Row> = ReadonlyMap<string | number, Row>;

/** Upserts rows by key. A table that outgrows `most` loses the rows with the smallest `age`. */
export function tableWith<Row>(
  table: Table<Row>,
  rows: readonly Row[] | undefined,
  keyOf: (row: Row) => string | number,
  limit?: { most: number; age: (row: Row) => number },
): Table<Row> {
  if (!rows || rows.length === 0) return table;
  const next = new Map(table);
  for (const row of rows) next.set(keyOf(row), row);
  if (limit && next.size > limit.most) {
    const oldest = [...next.values()].sort((a, b) => limit.age(a) - limit.age(b)).slice(0, next.size - limit.most);
    for (const row of oldest) next.delete(keyOf(row));
  }
  return next;
}

export function tableOf<Row>(rows: readonly Row[] | undefined, keyOf: (row: Row) => string | number): Table<Row> {
  return tableWith(new Map(), rows, keyOf);
}

export function tableWithout<Row>(table: Table<Row>, keys: ReadonlySet<string | number>): Table<Row> {
  if (![...keys].some((key) => table.has(key))) return table;
  return new Map([...table].filter(([key]) => !keys.has(key)));
}
