// A list that is read page by page: its error, its first loading, what stands for an empty list, its table and its
// pages. The address contains the position.
import type { ReactNode } from "react";
import { Loading } from "../Loading";
import { Problem } from "../Problem";
import { COUNT, useViewState } from "../useViewState";
import { Pager } from "./Pager";
import { Table, type TableProps } from "./Table";

export interface Page {
  limit: number;
  offset: number;
}

const NOTHING: readonly string[] = [];

/** The position in a list, as a query for REST, and how to move on. */
export function usePage(limit: number): { page: Page; onMove: (offset: number) => void } {
  const [offset, onMove] = useViewState("offset", COUNT, NOTHING);
  return { page: { limit, offset }, onMove };
}

/** What TanStack Query knows of a page. */
export interface PageRead<Row> {
  data: { results: readonly Row[]; count: number } | undefined;
  error: unknown;
  isPending: boolean;
}

interface ListProps {
  read: PageRead<unknown>;
  /** Names the rows: "Loading groups". */
  what: string;
  /** Stands for an empty list. */
  none: ReactNode;
  limit: number;
  words?: readonly [string, string];
  children: ReactNode;
}

/** The frame of a paged list, around whatever shows its rows. */
export function PagedList({ read, what, none, limit, words, children }: ListProps) {
  const { page, onMove } = usePage(limit);
  const { data, error, isPending } = read;
  return (
    <>
      <Problem error={error} />
      {isPending ? <Loading what={`Loading ${what}`} /> : null}
      {data && data.results.length === 0 ? <Empty>{none}</Empty> : null}
      {data && data.results.length > 0 ? children : null}
      <Pager {...page} count={data?.count ?? 0} onMove={onMove} {...(words ? { words } : {})} />
    </>
  );
}

/** A sentence is set as a paragraph; anything else stands as it is. */
function Empty({ children }: { children: ReactNode }) {
  return typeof children === "string" ? <p className="none">{children}</p> : children;
}

type PagedTableProps<Row> = Omit<TableProps<Row>, "rows"> &
  Omit<ListProps, "read" | "children"> & { read: PageRead<Row> };

export function PagedTable<Row>({ read, what, none, limit, words, ...table }: PagedTableProps<Row>) {
  return (
    <PagedList read={read} what={what} none={none} limit={limit} {...(words ? { words } : {})}>
      <Table rows={read.data?.results ?? []} {...table} />
    </PagedList>
  );
}
