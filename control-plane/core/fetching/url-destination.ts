/** Where a URL leads: one host and port count as one destination of places. */

/** Longer than any name of the DNS. */
const DESTINATION_LENGTH_MAX = 300;

/** `<host>:<port>` of a URL that was accepted; empty where the text is none. Pure. */
export function destinationOf(text: string): string {
  const url = URL.parse(text);
  if (url === null) return '';
  const port = url.port || (url.protocol === 'https:' ? '443' : '80');
  return `${url.hostname.replace(/\.$/, '')}:${port}`.slice(0, DESTINATION_LENGTH_MAX);
}
