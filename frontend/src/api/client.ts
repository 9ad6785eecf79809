// The REST client: typed by the generated schema and authenticated by the browser's session. Refusals become
// `ApiProblem`.
import createClient, { type Middleware } from "openapi-fetch";
import { isMapping, mappingsIn } from "../values/guards";
import type { components, paths } from "./schema.gen";

export type Schemas = components["schemas"];

export interface FieldFault {
  field: string;
  detail: string;
}

/** A response of `application/problem+json` (RFC 9457), or no response at all (status 0). */
export class ApiProblem extends Error {
  readonly status: number;
  readonly faults: FieldFault[];

  constructor(status: number, detail: string, faults: FieldFault[] = []) {
    super(detail);
    this.name = "ApiProblem";
    this.status = status;
    this.faults = faults;
  }
}

const CSRF_COOKIE = "seamlessflow_csrf";
const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS"]);
const SIGNED_OUT = new Set([401, 403]);

export function csrfToken(cookies: string = document.cookie): string {
  const found = cookies.split("; ").find((cookie) => cookie.startsWith(`${CSRF_COOKIE}=`));
  return found ? decodeURIComponent(found.slice(CSRF_COOKIE.length + 1)) : "";
}

const session: Middleware = {
  onRequest({ request }) {
    if (!SAFE_METHODS.has(request.method)) request.headers.set("X-CSRFToken", csrfToken());
    return request;
  },
  onError({ error }) {
    return new ApiProblem(
      0,
      `The platform could not be reached (${error instanceof Error ? error.message : error}). Check that it is running and that you are online.`,
    );
  },
};

export const api = createClient<paths>({ baseUrl: "/" });
api.use(session);

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The body of a response. Throws ApiProblem for a refusal. */
export async function bodyOf<T>(pending: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await pending;
  // The client omits `data` if a response has no body. T is undefined too in that case.
  if (response.ok) return data as T;
  throw problemOf(response.status, error);
}

export function problemOf(status: number, body: unknown): ApiProblem {
  const { detail, title, errors } = isMapping(body) ? body : {};
  const sentence = [detail, title].find((one) => typeof one === "string");
  return new ApiProblem(status, sentence ?? `The platform answered with status ${status}.`, faultsOf(errors));
}

function faultsOf(errors: unknown): FieldFault[] {
  return mappingsIn(errors).map(({ field, detail }) => ({ field: String(field ?? ""), detail: String(detail ?? "") }));
}

/** What a refusal says of a field; undefined if it says nothing of it. */
export function faultOf(error: unknown, name: string): string | undefined {
  return error instanceof ApiProblem ? error.faults.find(({ field }) => field === name)?.detail : undefined;
}

export function isSignedOut(error: unknown): boolean {
  return error instanceof ApiProblem && SIGNED_OUT.has(error.status) && /credentials|signed? in/i.test(error.message);
}
