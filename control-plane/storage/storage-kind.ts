import type { Logger } from 'pino';
import type { BlobStore } from './blob-store.ts';
import type { StorageFinding } from './storage-finding.ts';

/* A kind of storage other than directories, such as a package adds for URLs of its own. */
export interface StorageKind {
  /** For messages: bucket. */
  readonly noun: string;
  /** For messages: s3://bucket/prefix. */
  readonly form: string;
  isFor(storageUrl: string): boolean;
  /** The fault of a URL, without its value, to follow "must be". */
  problemOf(storageUrl: string): string | undefined;
  open(storageUrl: string, options: StorageOpening): Promise<BlobStore>;
  /** Describes an error of `open` in one line for the operator, without secrets. */
  describeError(error: unknown): string;
  check(storageUrl: string): Promise<readonly StorageFinding[]>;
  /** Printable rules by which the storage removes what a sweep left. */
  lifecycle(storageUrl: string, lives: BlobLives): unknown;
}

export interface BlobLives {
  readonly resultTtlMs: number;
  /** Longest life of a job, from its submission. */
  readonly jobMsMax: number;
}

export interface StorageOpening {
  readonly log?: Pick<Logger, 'warn' | 'debug'>;
  readonly observer?: StorageObserver;
}

export interface StorageObserver {
  storageRequestEnded(end: StorageRequestEnd): void;
}

export interface StorageRequestEnd {
  readonly operation: StorageOperation;
  /** With all attempts and waits. For reads, until the body begins. */
  readonly tookMs: number;
  readonly attempts: number;
  readonly outcome: StorageOutcome;
  /** The store's clock minus this machine's. */
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

/** Labels of metrics, whatever a store calls its errors. */
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
