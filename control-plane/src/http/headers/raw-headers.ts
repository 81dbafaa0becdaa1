/** Headers as they were sent. Node keeps the first of some repeated headers and joins others. */
import type { IncomingMessage } from 'node:http';

/** Every value of a header, in the order sent. @param name in lower case. */
export function headerValues(request: IncomingMessage, name: string): string[] {
  const { rawHeaders } = request;
  const values: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const sent = rawHeaders[index];
    if (sent.length === name.length && sent.toLowerCase() === name) {
      values.push(rawHeaders[index + 1]);
    }
  }
  return values;
}
