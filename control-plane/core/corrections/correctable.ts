import type { TextValue } from '@matting/http/body-fields.ts';
import { ContractError, invalidParameter } from '@matting/proto/contract/errors.ts';
import { FINISHING_FIELDS } from '@matting/proto/contract/finishing/table.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';
import { publicState } from '@matting/queue/job.ts';
import type { Job } from '../jobs/job.ts';
import type { CropRun } from '../jobs/job-family.ts';
import type { JobStore } from '../jobs/job-store.ts';
import { CORRECTIONS_MAX } from './family.ts';

/** A correction has the corrected job's picture, model and matte. */
export const NOT_IN_A_CORRECTION: readonly string[] = [
  'image_url',
  'image_base64',
  'image_file',
  'model',
  'no_subject',
  'correctable',
  'subject_box',
];

export type CorrectedJob = Pick<
  Job,
  'id' | 'finishing' | 'outputFormat' | 'correctable' | 'reference'
>;

/** Finishing fields that corrections inherit. No background picture is kept. */
export function keptFields(texts: ReadonlyMap<string, TextValue>): Record<string, string> {
  const kept = FINISHING_FIELDS.flatMap(field => {
    const text = texts.get(field);
    return typeof text === 'string' && field !== 'background_url' ? [[field, text]] : [];
  });
  return Object.fromEntries(kept);
}

/**
 * Adds fields of the corrected job that the correction does not send.
 * @throws ContractError INVALID_PARAMETER: the corrected job's background was a picture
 */
export function inheritedFields<Field extends string>(
  texts: ReadonlyMap<Field | 'background' | 'background_url' | 'output_format', TextValue>,
  backgroundGiven: boolean,
  corrected: CorrectedJob,
): typeof texts {
  const hasBackground = backgroundGiven || texts.has('background') || texts.has('background_url');
  if (!hasBackground && corrected.finishing?.background?.kind === 'picture') {
    throw invalidParameter(
      'background',
      'must be sent again: the service does not keep its picture. Send background_file, background_url or background=transparent',
    );
  }
  const { correctable, reference, outputFormat } = corrected;
  const kept = Object.entries(correctable ?? {}) as [Field, string][];
  const inherited = kept.filter(([field]) => !(hasBackground && field === 'background'));
  if (reference !== null) inherited.push(['reference' as Field, reference]);
  return new Map([...inherited, ['output_format', outputFormat], ...texts]);
}

/**
 * `countInFamily` decides again in the correction's transaction.
 * @throws ContractError JOB_NOT_CORRECTABLE, RESULT_EXPIRED, CORRECTIONS_EXHAUSTED
 */
export async function requireCorrectable(jobs: Pick<JobStore, 'find'>, jobId: string) {
  const of = await jobs.find(jobId);
  const first = of?.correction ? await jobs.find(of.correction.first) : of;
  if (of?.state !== 'succeeded' || of.correctable === null) {
    throw notCorrectable(jobId, of?.correctable == null ? TAKES_NO_CORRECTIONS : NOT_SUCCEEDED);
  }
  if (first === undefined || publicState(of) === 'expired' || publicState(first) === 'expired') {
    const detail = 'The first job has expired or was deleted. Submit the image again.';
    throw new ContractError('RESULT_EXPIRED', detail, { jobId });
  }
  const input = first.kept?.input;
  // If the credit was returned, the input is removed before the first result expires.
  if (of.kept === null || input == null || of.kept.untilMs <= of.readAtMs) {
    throw notCorrectable(jobId, NOTHING_KEPT);
  }
  if (first.corrections >= CORRECTIONS_MAX) {
    const detail = `The job has its ${CORRECTIONS_MAX} corrections. Submit the image again.`;
    throw new ContractError('CORRECTIONS_EXHAUSTED', detail, { jobId });
  }
  return { input, model: first.model, correction: { of: of.id, first: first.id } };
}

/**
 * Undefined if the hints have only boxes to erase, which never need a run (docs/adr/0062).
 * @param model of the first job
 */
export function cropRunFor(
  { keep = [], erase = [], picture }: Hints,
  model: string | null,
): CropRun | undefined {
  if (!picture && keep.length === 0 && !erase.some(shape => 'line' in shape)) return undefined;
  return model === null ? {} : { model };
}

const TAKES_NO_CORRECTIONS =
  'The job keeps no input. Submit the image again with correctable=true.';
const NOT_SUCCEEDED = 'The job has not succeeded. Correct a job whose status is succeeded.';
const NOTHING_KEPT =
  'The service keeps no matte of this job: its node kept none, or the result of the first job was lost and its credit returned. Submit the image again.';

function notCorrectable(jobId: string, detail: string): ContractError {
  return new ContractError('JOB_NOT_CORRECTABLE', detail, { jobId });
}
