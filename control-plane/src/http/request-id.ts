/** The name of one request in answers and logs: ours alone, never a caller's. */
import { randomUUID } from 'node:crypto';

export function createRequestId(): string {
  return `req_${randomUUID()}`;
}
