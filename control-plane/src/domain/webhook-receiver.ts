/** Whom a notification goes to: one machine as far as a URL tells, and so one place in a queue. */

/** Longer than any name of the DNS. */
const RECEIVER_LENGTH_MAX = 300;

/** `<host>:<port>` of a URL that was accepted; empty where the text is none. Pure. */
export function receiverOf(callbackUrl: string): string {
  const url = URL.parse(callbackUrl);
  if (url === null) return '';
  const port = url.port || (url.protocol === 'https:' ? '443' : '80');
  return `${url.hostname.replace(/\.$/, '')}:${port}`.slice(0, RECEIVER_LENGTH_MAX);
}
