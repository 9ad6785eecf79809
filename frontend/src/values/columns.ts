// Reads entries that the code knows to exist, which the compiler cannot know. Pure.
//
// Outside a column, the readers of numbers return NaN, which spreads through arithmetic as `undefined` would. Each kind
// of column has its own reader, because JavaScript engines optimise a read for the kinds of array it has met: with one
// reader for all, the layout of a large forest takes two to four times as long.

export function numberAt(column: ArrayLike<number>, index: number): number {
  return column[index] ?? Number.NaN;
}

export function intAt(column: Int32Array, index: number): number {
  return column[index] ?? Number.NaN;
}

export function floatAt(column: Float32Array | Float64Array, index: number): number {
  return column[index] ?? Number.NaN;
}

/** Throws a RangeError outside the list. */
export function itemAt<Item>(list: readonly Item[], index: number): Item {
  const item = list[index];
  if (item === undefined) throw new RangeError(`no item ${index} in a list of ${list.length}`);
  return item;
}
