// Shows components in tests, with invented answers instead of a platform. What they ask of REST is recorded.
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render } from "@testing-library/react";
import type { ReactNode } from "react";
import { MemoryRouter, useLocation } from "react-router";
import { afterEach, beforeEach } from "vitest";

export interface Asked {
  method: string;
  /** Below /api/v1, with its query. */
  path: string;
  body: unknown;
  generation: string | null;
}

/** By method and path without its query: the body, a refusal, or a function of the query that returns one of them. */
export type Answers = Readonly<Record<string, unknown>>;

export class Refusal {
  readonly status: number;
  readonly body: unknown;

  constructor(status: number, body: unknown) {
    this.status = status;
    this.body = body;
  }
}

export const asked: Asked[] = [];
let answers: Answers = {};

// The client of REST keeps the function that it finds when it is loaded, so this stands in for all tests of a file.
globalThis.fetch = async (input: RequestInfo | URL): Promise<Response> => {
  const request = input instanceof Request ? input : new Request(input);
  const { pathname, search } = new URL(request.url);
  const path = pathname.replace("/api/v1", "");
  const text = await request.text();
  const body = text === "" ? null : JSON.parse(text);
  asked.push({ method: request.method, path: path + search, body, generation: request.headers.get("If-Match") });
  const known = answers[`${request.method} ${path}`];
  const answer = typeof known === "function" ? known(search) : known;
  const json = { headers: { "Content-Type": "application/json" } };
  if (answer instanceof Refusal) return new Response(JSON.stringify(answer.body), { status: answer.status, ...json });
  if (answer === undefined) return new Response(JSON.stringify({ detail: `${path} does not exist.` }), { status: 404 });
  return answer === null ? new Response(null, { status: 204 }) : new Response(JSON.stringify(answer), json);
};

const { queryClient } = await import("./queries");

beforeEach(() => {
  asked.length = 0;
  answers = {};
  queryClient.clear();
});
afterEach(cleanup);

/** What was sent to change something, in order. */
export function edits(): Asked[] {
  return asked.filter(({ method }) => method !== "GET");
}

export function pageOf<Row>(results: readonly Row[]) {
  return { results, count: results.length, limit: 50, offset: 0 };
}

let address = "";

/** The path and query that the browser's address line would show. */
export function addressShown(): string {
  return address;
}

function Address() {
  const { pathname, search } = useLocation();
  address = pathname + search;
  return null;
}

export function show(node: ReactNode, { at = "/", given = {} }: { at?: string; given?: Answers } = {}) {
  answers = given;
  return render(
    <QueryClientProvider client={queryClient}>
      <MemoryRouter initialEntries={[at]}>
        {node}
        <Address />
      </MemoryRouter>
    </QueryClientProvider>,
  );
}
