/**
 * `settings`: no such model, size or precision. `manifest`: malformed. `missing`: weights not
 * fetched. `altered`: not the weights that the manifest names. `fetch`: no registry, or not the
 * pinned package. `disk`: the cache cannot be read or written. `prepare`: the graph cannot run as
 * requested.
 */
export type ModelErrorKind =
  | 'settings'
  | 'manifest'
  | 'missing'
  | 'altered'
  | 'fetch'
  | 'disk'
  | 'prepare';

/** For the operator who starts a node. The message is one line on what is wrong and what to do. */
export class ModelError extends Error {
  readonly kind: ModelErrorKind;

  constructor(kind: ModelErrorKind, message: string, cause?: unknown) {
    super(printable(message), { cause });
    this.name = 'ModelError';
    this.kind = kind;
  }
}

/** Characters that a terminal obeys, or that hide or turn others. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** One line of text that others wrote. Shows an escape sequence as its characters. */
export function printable(text: string): string {
  return text
    .replace(/\s*\n\s*/g, ' ')
    .replace(UNPRINTABLE, character => `\\u{${character.codePointAt(0)?.toString(16)}}`);
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

export function diskError(error: unknown, action: string, path: string): unknown {
  const reason = DISK_REASONS[(error as NodeJS.ErrnoException | undefined)?.code ?? ''];
  if (error instanceof ModelError || reason === undefined) return error;
  return new ModelError('disk', `cannot ${action} ${path}: ${reason}`, error);
}
