/** How the end of an attempt is called: by callers, in metrics. */
import { ContractError, ERROR_CATALOGUE } from '#contract/errors.ts';
import type { JobFailure } from '../../domain/job.ts';
import type { AttemptOutcome } from '../../nodes/attempt-outcome.ts';

export const NODE_FAULTS: JobFailure = {
  code: 'PROCESSING_FAILED',
  detail: 'the service failed internally while it processed the image',
  retryable: true,
};

/** The failure that callers see for a fault of the image; codes of nodes never reach them. */
export function failureOf(error: ContractError): JobFailure {
  const code = ERROR_CATALOGUE[error.code].scope === 'public' ? error.code : 'PROCESSING_FAILED';
  return { code, detail: error.message, retryable: error.retryable };
}

/** The code that ended it; undefined for a success or our own abort. */
export function reasonOf(outcome: AttemptOutcome) {
  return 'error' in outcome && outcome.error instanceof ContractError
    ? outcome.error.code
    : undefined;
}
