import type { ContractError } from '@matting/proto/contract/errors.ts';

export const PROBLEM_TYPE = 'application/problem+json';
export const ERROR_DOCS_PATH = '/docs/errors';

/** @param context.instance the path; absent if it could not be read */
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

/** For 429 and 503 without a time of their own. */
const RETRY_AFTER_S = 5;

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
