import type { components } from "./schema.js";

type Problem = components["schemas"]["Problem"];

/** What went wrong: the service's code, or why there is none. */
export type ErrorCode =
  | Problem["code"]
  | "method_not_allowed"
  | "misdirected"
  /** The service did not answer. */
  | "connection"
  /** What answered is not Holdfast. */
  | "not_holdfast";

/** What is wrong with one field. */
export type FieldError = components["schemas"]["FieldError"];

/** A call that failed. Sold out and the like are outcomes, and never thrown. */
export class HoldfastError extends Error {
  override readonly name = "HoldfastError";
  /** What is wrong, for a program. */
  readonly code: ErrorCode;
  /** The HTTP status; 0 without an answer. */
  readonly status: number;
  /** Identifies the call in the logs and the record of the service. */
  readonly correlationId: string | undefined;
  /** The fields that are not valid, with the code `invalid`. */
  readonly errors: FieldError[];
  /** The status that was found, with the code `conflicting_state`. */
  readonly actual: Problem["actual"];

  constructor(
    problem: { code: ErrorCode; status: number; detail: string; errors?: FieldError[]; actual?: Problem["actual"]; correlationId?: string },
    options?: ErrorOptions,
  ) {
    super(problem.detail, options);
    this.code = problem.code;
    this.status = problem.status;
    this.correlationId = problem.correlationId;
    this.errors = problem.errors ?? [];
    this.actual = problem.actual;
  }
}

/** readError is the error that a response describes. */
export function readError(body: unknown, response: Response): HoldfastError {
  const correlationId = response.headers.get("X-Correlation-Id") ?? undefined;
  if (typeof body === "object" && body !== null && "code" in body && "detail" in body) {
    const problem = body as Problem;
    return new HoldfastError({ ...problem, status: response.status, correlationId });
  }
  return new HoldfastError({ code: "not_holdfast", status: response.status, detail: `the server is not a Holdfast service: ${response.status}`, correlationId });
}
