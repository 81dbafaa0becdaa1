/**
 * A lane holds the open jobs of one API key and class that need a download, or those that do not.
 * Rounds read the first few of each lane, so ten thousand jobs of one lane do not hide another
 * lane.
 */
import { type JobClass, type JobStatus, needsDownload } from './job.ts';

/**
 * An asynchronous job goes first if it is this much older than a synchronous one, whose caller
 * waits 120 s.
 */
export const ASYNC_HEAD_START_MS = 60_000;

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
  readonly exceptHosts?: readonly string[];
  readonly unboundOnly?: boolean;
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
