/**
 * Lanes of the queue: the open jobs of one API key and class that are ready, or those that are to
 * be downloaded. The queue is read by the first few of each, so that ten thousand jobs
 * of one lane never hide the first of another.
 */
import { type JobClass, type JobStatus, needsDownload } from './job.ts';

/**
 * An asynchronous job goes before a synchronous one, whose caller waits 120 s, if it is so much
 * older.
 */
export const ASYNC_HEAD_START_MS = 60_000;

/** Smaller first. */
export function queuePositionMs(jobClass: JobClass, createdAtMs: number): number {
  return jobClass === 'sync' ? createdAtMs : createdAtMs + ASYNC_HEAD_START_MS;
}

export interface JobLane {
  readonly needsDownload: boolean;
  readonly class: JobClass;
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly firstQueueAtMs: number;
  readonly readAtMs: number;
}

export type LaneIdentity = Pick<JobLane, 'needsDownload' | 'class' | 'accountId' | 'apiKeyId'>;

export interface LaneRead extends LaneIdentity {
  /** Downloads from these source hosts are passed over. */
  readonly exceptHosts?: readonly string[];
  /** Jobs that ask for particular engines are passed over. */
  readonly namesNone?: boolean;
}

export function laneKey(lane: LaneIdentity): string {
  const step = lane.needsDownload ? 'download' : 'stored';
  return `${step} ${lane.class} ${lane.accountId} ${lane.apiKeyId}`;
}

export type LanedJob = Pick<JobStatus, 'state' | 'class' | 'accountId' | 'apiKeyId'>;

export function laneOf(job: LanedJob): LaneIdentity {
  const { accountId, apiKeyId } = job;
  return { needsDownload: needsDownload(job), class: job.class, accountId, apiKeyId };
}
