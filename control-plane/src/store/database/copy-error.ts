/** A database was not copied, or read back, by its engine's means. One line for the operator. */
export class DatabaseCopyError extends Error {
  constructor(detail: string, cause?: unknown) {
    super(detail, { cause });
    this.name = 'DatabaseCopyError';
  }
}
