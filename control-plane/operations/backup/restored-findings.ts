/**
 * `matting restore --check`: whether a database and a storage belong together and nothing is missing
 * of them: the ledger derived again, every link's picture, every open job's pictures. It changes
 * nothing, and may run on a service that works.
 */
import { counted, type Finding, failure, ok, warning } from '#program/doctor/findings.ts';
import { FINAL_STATES, type Job, OPEN_STATES } from '../../core/jobs/job.ts';
import { BlobNotFoundError, type BlobStore, hashOf } from '../../core/storage/blob-store.ts';
import type { StoresWithoutEnds } from '../../core/stores.ts';

/** Jobs that are read at once, and blobs that are looked at at once. */
const PAGE = 100;
const BLOBS_AT_ONCE_MAX = 8;
/** Named one by one; of more only their number is said. */
const NAMED_MAX = 20;
/** No link lives longer (MATTING_RESULT_TTL_MS). */
const LINK_LIFE_MS_MAX = 31 * 86_400_000;

export interface RestoredParts {
  readonly stores: Pick<StoresWithoutEnds, 'jobs' | 'ledger'>;
  readonly blobs: Pick<BlobStore, 'stat' | 'openRead' | 'signed'>;
  /** Compares sizes, and reads nothing. */
  readonly sizesOnly: boolean;
}

export async function restoredFindings(parts: RestoredParts): Promise<readonly Finding[]> {
  return [await ledgerFinding(parts), await linksFinding(parts), await openJobsFinding(parts)];
}

async function ledgerFinding({ stores }: RestoredParts): Promise<Finding> {
  const { problemCount, problems, entries, accounts } = await stores.ledger.audit({ kind: 'full' });
  if (problemCount === 0) {
    const read = `${counted(accounts, 'account')}, ${entries} entries`;
    return ok('ledger', `every balance agrees with it (${read})`);
  }
  const [first] = problems;
  const found = `${counted(problemCount, 'problem')}, the first: ${first?.problem ?? 'unknown'}`;
  return failure('ledger', found, 'matting credits check --full names them');
}

interface Expected {
  readonly jobId: string;
  readonly blob: string;
  readonly bytes: number;
  /** Hexadecimal; undefined: it was not kept. */
  readonly sha256: string | undefined;
}

async function linksFinding(parts: RestoredParts): Promise<Finding> {
  const { count, missing } = await look(parts, FINAL_STATES, job => {
    const { result, expiresAtMs, readAtMs } = job;
    if (result === null || (expiresAtMs ?? 0) <= readAtMs) return [];
    return [{ jobId: job.id, ...result }];
  });
  if (missing.length === 0)
    return ok('links', `${counted(count, 'link')} and each has its picture`);
  const found = `${missing.length} of ${counted(count, 'link')} answer 410: ${named(missing)}`;
  return failure('links', found, 'copy the blobs again from where they were, and check again');
}

async function openJobsFinding(parts: RestoredParts): Promise<Finding> {
  const { count, missing } = await look(parts, OPEN_STATES, job => {
    const inputs = [job.input, job.background?.input ?? null];
    return inputs.flatMap(input =>
      input === null ? [] : [{ jobId: job.id, ...input, sha256: undefined }],
    );
  });
  const pictures = counted(count, 'picture');
  if (missing.length === 0) return ok('open jobs', `${pictures} of open jobs, and all are there`);
  const found = `${missing.length} of ${pictures} are gone: ${named(missing)}`;
  const advice = 'nothing has to be done: these jobs fail, retryable, and their credits return';
  return warning('open jobs', found, advice);
}

function named(missing: readonly Expected[]): string {
  const names = missing.slice(0, NAMED_MAX).map(({ jobId }) => `job ${jobId}`);
  const more = missing.length - names.length;
  return more > 0 ? `${names.join(', ')} and ${more} more` : names.join(', ');
}

/** Over all jobs of these states, a page at a time. */
async function look(
  parts: RestoredParts,
  states: typeof FINAL_STATES | typeof OPEN_STATES,
  expectedOf: (job: Job) => readonly Expected[],
) {
  const missing: Expected[] = [];
  let count = 0;
  let after: string | undefined;
  for (;;) {
    const filter = { states, endedWithinMs: LINK_LIFE_MS_MAX, limit: PAGE };
    const jobs = await parts.stores.jobs.list({ ...filter, after });
    const expected = jobs.flatMap(expectedOf);
    count += expected.length;
    missing.push(...(await missingOf(parts, expected)));
    after = jobs.at(-1)?.cursor;
    if (jobs.length < PAGE || after === undefined) return { count, missing };
  }
}

async function missingOf(parts: RestoredParts, expected: readonly Expected[]): Promise<Expected[]> {
  const missing: Expected[] = [];
  const queue = expected.values();
  const work = async () => {
    for (const one of queue) {
      if (!(await isThere(parts, one)) && (await isStillNamed(parts, one))) missing.push(one);
    }
  };
  await Promise.all(Array.from({ length: BLOBS_AT_ONCE_MAX }, work));
  return missing;
}

/** By the store's own checksum where it keeps one, else by reading. */
async function isThere({ blobs, sizesOnly }: RestoredParts, { blob, bytes, sha256 }: Expected) {
  if (sizesOnly || sha256 === undefined) return (await blobs.stat(blob))?.bytes === bytes;
  const said = await blobs.signed?.stored(blob);
  if (said?.sha256 !== undefined) return said.bytes === bytes && said.sha256 === sha256;
  try {
    const read = await hashOf(blobs, blob);
    return read.bytes === bytes && read.sha256 === sha256;
  } catch (error) {
    if (error instanceof BlobNotFoundError) return false;
    throw error;
  }
}

/** On a service that works a job may have ended since, and a link too. */
async function isStillNamed({ stores }: RestoredParts, { blob }: Expected): Promise<boolean> {
  return (await stores.jobs.referencedBlobs([blob])).has(blob);
}
