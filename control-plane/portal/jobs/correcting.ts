/** The painter with which people correct a cut-out, and the call that does the same. */
import { type Job, type JobStatus, publicState } from '@matting/core/jobs/job.ts';
import type { Child } from '../page/html.ts';
import { ERASE_HERE, KEEP_HERE, painter } from '../page/painter.ts';
import { may } from '../session/roles.ts';
import type { Visit } from '../session/visit.ts';
import { JOBS_PATH } from './thumbnails.ts';

/** Null: nothing is kept (any more), the picture's size is not known, or the role may not. */
export function correcting(
  { words, csrf, role }: Visit,
  job: JobStatus & Pick<Job, 'kept' | 'result'>,
  { action, call }: { readonly action: string; readonly call: string },
): Child {
  const { kept, result, readAtMs, id } = job;
  const isKept = kept !== null && kept.untilMs > readAtMs && publicState(job) === 'succeeded';
  const { sight } = result ?? {};
  if (!isKept || sight == null || !may(role, 'jobs.correct')) return null;
  const size = { width: sight.inputWidth, height: sight.inputHeight };
  return painter({ words, csrf, action, size, call, original: `${JOBS_PATH}/${id}/original` });
}

/** For a shell of POSIX; the shapes have no quote in them. */
export function correctionCall(baseUrl: string, jobId: string): string {
  return [
    `curl -sS '${baseUrl}/v1/matting/jobs/${jobId}/corrections'`,
    '-H "Authorization: Bearer $MATTING_API_KEY"',
    `-H "Idempotency-Key: correction-$(date +%s)" -H 'Prefer: wait=30'`,
    `--form-string 'keep=${KEEP_HERE}'`,
    `--form-string 'erase=${ERASE_HERE}'`,
  ].join(' \\\n  ');
}
