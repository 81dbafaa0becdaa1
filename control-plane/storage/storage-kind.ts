/** A kind of storage beside directories, and what such a store reports of its requests. */

import type { Logger } from 'pino';
import type { BlobStore } from './blob-store.ts';
import type { StorageFinding } from './storage-finding.ts';

/* A kind of storage beside directories, and what such a store says of its requests. */
export interface StorageKind {
  /** Messages call a storage so: bucket. */
  readonly noun: string;
  /** Messages show this form of its URLs: s3://bucket/prefix. */
  readonly form: string;
  isFor(storageUrl: string): boolean;
  /** Finds what is wrong with a URL of this kind, without its value, behind "must be". */
  problemOf(storageUrl: string): string | undefined;
  open(storageUrl: string, options: StorageOpening): Promise<BlobStore>;
  /** Describes an error of the opening: one line for the operator, without secrets. */
  describeError(error: unknown): string;
  check(storageUrl: string): Promise<readonly StorageFinding[]>;
  /** Rules that the storage follows by itself, to be printed: they take what a sweep left. */
  lifecycle(storageUrl: string, lives: BlobLives): unknown;
}

export interface BlobLives {
  readonly resultTtlMs: number;
  /** A job takes at most so long from its submission to its end. */
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
  /** All attempts and the waits between them; for a body that is read, until it begins. */
  readonly tookMs: number;
  readonly attempts: number;
  readonly outcome: StorageOutcome;
  /** Added to this machine's clock gives the store's, as its answers show. */
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

/** A request ends in one of these, for metrics: few, whatever a store calls its errors. */
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
