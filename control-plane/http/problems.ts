/** An error of the catalogue as problem+json (RFC 9457), and the headers that belong to it. */
import type { ContractError } from '@matting/proto/contract/errors.ts';

export const PROBLEM_TYPE = 'application/problem+json';
/** Path of the page that has a heading for each code. */
export const ERROR_DOCS_PATH = '/docs/errors';

/** @param context.instance the path that was asked for; absent where none could be read */
export function problemOf(
  error: ContractError,
  context: { readonly baseUrl: string; readonly requestId: string; readonly instance?: string },
) {
  const { spec } = error;
  return {
    type: `${context.baseUrl}${ERROR_DOCS_PATH}#${error.code.toLowerCase()}`,
    title: spec.title,
    status: spec.http,
    detail: error.message,
    ...(context.instance === undefined ? {} : { instance: context.instance }),
    code: error.code,
    request_id: context.requestId,
    retryable: error.retryable,
    ...(error.jobId === undefined ? {} : { job_id: error.jobId }),
    ...(error.fieldErrors.length === 0 ? {} : { errors: error.fieldErrors }),
  };
}

/** Seconds to wait before a retry, for errors of load that give none themselves. */
const RETRY_AFTER_S = 5;

/** The headers that belong to the error, besides its body's own. */
export function problemHeaders(error: ContractError): Record<string, string> {
  const headers: Record<string, string> = {};
  const { http } = error.spec;
  if (http === 401) headers['www-authenticate'] = 'Bearer';
  if (error.retryAfterS !== undefined || http === 429 || http === 503) {
    headers['retry-after'] = String(error.retryAfterS ?? RETRY_AFTER_S);
  }
  // Only a submission's errors name a job, and only its first answer reports the charge.
  if (error.jobId !== undefined) headers['x-credits-charged'] = '0';
  return headers;
}
