/** Headers as they were sent. Node keeps the first of some repeated headers and joins others. */
import type { IncomingMessage } from 'node:http';

/** Every value of a header, in the order sent. @param name in lower case. */
export function headerValues(request: IncomingMessage, name: string): string[] {
  const { rawHeaders } = request;
  const values: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const [sent, value] = [rawHeaders[index], rawHeaders[index + 1]];
    if (sent?.length === name.length && value !== undefined && sent.toLowerCase() === name) {
      values.push(value);
    }
  }
  return values;
}
