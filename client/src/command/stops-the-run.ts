/**
 * Decides whether a failure is one picture's, or whether the next one would fail in the same way.
 */
import { ERROR_CODES, MattingError } from '../errors.ts';
import { codeOf } from './picture-run.ts';

/** Codes about one picture, its job or its result, as in the service's catalogue. */
export const CODES_OF_PICTURES: readonly string[] = [
  'INVALID_IMAGE_SOURCE',
  'UNSUPPORTED_IMAGE_FORMAT',
  'IMAGE_RESOLUTION_TOO_LARGE',
  'IMAGE_DOWNLOAD_FAILED',
  'JOB_NOT_FOUND',
  'BATCH_NOT_FOUND',
  'IDEMPOTENCY_CONFLICT',
  'JOB_CANCELLED',
  'JOB_NOT_CANCELLABLE',
  'BATCH_NOT_REPEATABLE',
  'JOB_NOT_CORRECTABLE',
  'CORRECTIONS_EXHAUSTED',
  'RESULT_EXPIRED',
  'PRECONDITION_FAILED',
  'IMAGE_TOO_LARGE',
  'RANGE_NOT_SATISFIABLE',
  'PROCESSING_FAILED',
  'NO_SUBJECT',
  'RESULT_LOST',
];

/**
 * Codes about an option. They meet most pictures, but not each: a tall picture may become too high.
 */
export const CODES_OF_OPTIONS: readonly string[] = [
  'UNSUPPORTED_OUTPUT_FORMAT',
  'INVALID_PARAMETER',
  'INVALID_CALLBACK',
];

/** The service refuses the key or the account with these statuses, whatever the code. */
const STATUSES_OF_ALL: readonly unknown[] = [401, 402, 403];

/** A file that is too large for the service, or for a proxy before it, which knows no codes. */
const TOO_LARGE_STATUS = 413;

/** Errors of a disk that takes no more data. */
const CODES_OF_DISKS: readonly string[] = ['ENOSPC', 'EDQUOT', 'EROFS', 'EIO', 'EMFILE'];

const KNOWN_CODES: readonly string[] = [...ERROR_CODES, 'NO_ANSWER', 'UNREADABLE_ANSWER'];

/**
 * A newer service has codes that this client does not know. Such an error stops the run if it is
 * retryable, or if its status refuses the key or the account. Otherwise only its picture fails.
 * @param isOneMade whether a picture was cut out with the same options in this run
 */
export function stopsTheRun(error: Error, isOneMade: boolean): boolean {
  const code = codeOf(error);
  if (!(error instanceof MattingError)) return CODES_OF_DISKS.includes(code);
  const { status, retryable, jobId } = error;
  if (CODES_OF_PICTURES.includes(code) || status === TOO_LARGE_STATUS) return false;
  // The time for retries is over: the next picture would meet the same failure.
  if (retryable) return true;
  if (!KNOWN_CODES.includes(code)) return STATUSES_OF_ALL.includes(status);
  if (CODES_OF_OPTIONS.includes(code) && isOneMade) return false;
  // A job that failed without `retryable` failed because of its picture.
  return jobId === undefined;
}
