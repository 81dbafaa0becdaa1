/** An answer of S3 that refuses: its status and code. */
export class ObjectStoreError extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string) {
    super(code);
    this.name = 'ObjectStoreError';
    this.status = status;
    this.code = code;
  }
}
