/** Decides whether the next picture would fail in the same way. */
import { ERROR_CODES, MattingError } from '../errors.ts';
import { codeOf } from './picture-run.ts';

/** Errors of one picture, job or result. */
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

/** Errors of an option, which may affect only some pictures. */
export const CODES_OF_OPTIONS: readonly string[] = [
  'UNSUPPORTED_OUTPUT_FORMAT',
  'INVALID_PARAMETER',
  'INVALID_CALLBACK',
];

/** Statuses of a refused key or account. */
const STATUSES_OF_ALL: readonly unknown[] = [401, 402, 403];

/** A proxy, too, may answer with this status, without a code. */
const TOO_LARGE_STATUS = 413;

/** A disk that takes no more data. */
const CODES_OF_DISKS: readonly string[] = ['ENOSPC', 'EDQUOT', 'EROFS', 'EIO', 'EMFILE'];

const KNOWN_CODES: readonly string[] = [...ERROR_CODES, 'NO_ANSWER', 'UNREADABLE_ANSWER'];

/**
 * An unknown code of a newer service stops the run only if its status refuses the key or the
 * account.
 * @param isOneMade a picture has succeeded with the same options
 */
export function stopsTheRun(error: Error, isOneMade: boolean): boolean {
  const code = codeOf(error);
  if (!(error instanceof MattingError)) return CODES_OF_DISKS.includes(code);
  const { status, retryable, jobId } = error;
  if (CODES_OF_PICTURES.includes(code) || status === TOO_LARGE_STATUS) return false;
  // Its retries are used up, so the next picture would fail, too.
  if (retryable) return true;
  if (!KNOWN_CODES.includes(code)) return STATUSES_OF_ALL.includes(status);
  if (CODES_OF_OPTIONS.includes(code) && isOneMade) return false;
  // If a job failed permanently, only its picture is at fault.
  return jobId === undefined;
}
