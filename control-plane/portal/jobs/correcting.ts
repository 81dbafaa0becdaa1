/** The painter for corrections, and the equivalent call of the API. */
import type { Job } from '@matting/core/jobs/job.ts';
import { type JobStatus, publicState } from '@matting/queue/job.ts';
import type { Child } from '../page/html.ts';
import { ERASE_HERE, KEEP_HERE, painter } from '../page/painter.ts';
import { may } from '../session/roles.ts';
import type { Visit } from '../session/visit.ts';
import { JOBS_PATH } from './thumbnails.ts';

type KeptJob = JobStatus & Pick<Job, 'kept'>;
type CorrectedJob = KeptJob & Pick<Job, 'result' | 'correction'>;

/** Undefined: the picture is not kept, or the role may not see it. */
export function originalOf({ role }: Pick<Visit, 'role'>, job: KeptJob): string | undefined {
  const isKept = job.kept !== null && job.kept.untilMs > job.readAtMs;
  const isShown = isKept && publicState(job) === 'succeeded' && may(role, 'jobs.correct');
  return isShown ? `${JOBS_PATH}/${job.id}/original` : undefined;
}

interface CorrectingPage {
  readonly pageOf: (jobId: string) => string;
  readonly query?: string;
  readonly call: string;
}

/** Null: the picture is not kept, its size is unknown, or the role forbids it. */
export function correcting(
  visit: Visit,
  job: CorrectedJob,
  { pageOf, query = '', call }: CorrectingPage,
): Child {
  const original = originalOf(visit, job);
  const { sight } = job.result ?? {};
  if (original === undefined || sight == null) return null;
  const size = { width: sight.inputWidth, height: sight.inputHeight };
  const action = `${pageOf(job.id)}/corrections${query}`;
  const back = job.correction ? `${pageOf(job.correction.of)}${query}` : undefined;
  return painter({ words: visit.words, csrf: visit.csrf, action, size, call, original, back });
}

/** For a POSIX shell. The shapes contain no quotes. */
export function correctionCall(baseUrl: string, jobId: string): string {
  return [
    `curl -sS '${baseUrl}/v1/matting/jobs/${jobId}/corrections'`,
    '-H "Authorization: Bearer $MATTING_API_KEY"',
    `-H "Idempotency-Key: correction-$(date +%s)" -H 'Prefer: wait=30'`,
    `--form-string 'keep=${KEEP_HERE}'`,
    `--form-string 'erase=${ERASE_HERE}'`,
  ].join(' \\\n  ');
}
