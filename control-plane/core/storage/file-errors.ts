/** No space, read-only, no rights, a bad disk: callers may retry, the operator must act. */
import { unreadable, unwritable } from './storage-errors.ts';

/** Rejects with SERVICE_UNAVAILABLE where the work does, the file system's error as its cause. */
export function writing<T>(work: Promise<T>): Promise<T> {
  return work.catch(cause => {
    throw unwritable(cause);
  });
}

/** The same of reading. */
export function reading<T>(work: Promise<T>): Promise<T> {
  return work.catch(cause => {
    throw unreadable(cause);
  });
}

export function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | null)?.code === 'ENOENT';
}
