/** Helpers for files are in files.ts, which needs Node's modules. */
export type {
  CallOptions,
  CutOut,
  Download,
  MattingClientOptions,
  OpenCutOut,
  SubmitOptions,
} from './client.ts';
export { MattingClient } from './client.ts';
export type { ClientErrorCode, ErrorCode } from './errors.ts';
export { ERROR_CODES, MattingError } from './errors.ts';
export type { Fetch } from './exchange.ts';
export type { ResultFile } from './result-file.ts';
export type { Retry } from './retry-budget.ts';
export type { MattingRequest } from './submission.ts';
export { IMAGE_BYTES_MAX } from './submission.ts';
export type * from './types.ts';
