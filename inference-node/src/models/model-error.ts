/**
 * What goes wrong before a node serves: with a model's manifest, its weights, its prepared file or
 * the variables that choose it. These errors are for the operator who starts a program, never for a
 * caller of the API, so they are not in the error catalogue.
 */

/**
 * - `settings`: a variable or an argument asks for what there is not.
 * - `manifest`: a manifest is malformed.
 * - `missing`: the weights are not there yet.
 * - `altered`: a weights file is not the one the manifest names.
 * - `fetch`: the registry could not be reached, or it sent something else than what is pinned.
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

/** The message is one line that says what is wrong and what to do; it may be shown as it is. */
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
  EEXIST: 'a file of that name is in the way',
};

/** The error of a file system call as one line; anything else is returned as it is. */
export function diskError(error: unknown, action: string, path: string): unknown {
  const reason = DISK_REASONS[(error as NodeJS.ErrnoException | undefined)?.code ?? ''];
  if (error instanceof ModelError || reason === undefined) return error;
  return new ModelError('disk', `cannot ${action} ${path}: ${reason}`, error);
}
