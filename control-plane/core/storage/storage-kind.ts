/** A kind of storage beside directories, and what such a store reports of its requests. */

import type { Logger } from 'pino';
import type { BlobStore } from './blob-store.ts';
import type { StorageFinding } from './storage-finding.ts';

/* A kind of storage beside directories, and what such a store says of its requests. */
export interface StorageKind {
  /** What messages call one: bucket. */
  readonly noun: string;
  /** Of its URLs, for messages: s3://bucket/prefix. */
  readonly form: string;
  isFor(storageUrl: string): boolean;
  /** What is wrong with a URL of this kind, without its value, behind "must be". */
  problemOf(storageUrl: string): string | undefined;
  open(storageUrl: string, options: StorageOpening): Promise<BlobStore>;
  /** What opening rejected with: one line for the operator, without secrets. */
  describeError(error: unknown): string;
  check(storageUrl: string): Promise<readonly StorageFinding[]>;
  /** Rules that the storage follows by itself, to be printed: they take what a sweep left. */
  lifecycle(storageUrl: string, lives: BlobLives): unknown;
}

export interface BlobLives {
  readonly resultTtlMs: number;
  /** From a submission to the end of its job, at most. */
  readonly jobMsMax: number;
}

export interface StorageOpening {
  /** Where blobs are gathered before they are sent; the system's for temporary files where absent. */
  readonly spoolDir?: string;
  readonly log?: Pick<Logger, 'warn' | 'debug'>;
  readonly observer?: StorageObserver;
}

export interface StorageObserver {
  storageRequestEnded(end: StorageRequestEnd): void;
}

export interface StorageRequestEnd {
  readonly operation: StorageOperation;
  /** All attempts and the waits between them; of a body that is read, to its beginning. */
  readonly tookMs: number;
  readonly attempts: number;
  readonly outcome: StorageOutcome;
  /** What is added to this machine's clock to be the store's, as its answers show. */
  readonly clockOffsetMs: number;
}

export const STORAGE_OPERATIONS = [
  'put',
  'get',
  'head',
  'delete',
  'list',
  'multipart-create',
  'multipart-part',
  'multipart-complete',
  'multipart-abort',
  'multipart-list',
] as const;
export type StorageOperation = (typeof STORAGE_OPERATIONS)[number];

/** How a request ended, for metrics: few, whatever a store calls its errors. */
export const STORAGE_OUTCOMES = [
  'ok',
  'not-found',
  'exists',
  'denied',
  'clock',
  'slow-down',
  'timeout',
  'unavailable',
  'other',
] as const;
export type StorageOutcome = (typeof STORAGE_OUTCOMES)[number];
