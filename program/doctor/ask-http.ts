/** One GET of a program of this service, inside: short, bounded, never with a secret. */

const ANSWER_MS_MAX = 5000;
/** A control plane's metrics are some 100 KB. */
const ANSWER_BYTES_MAX = 8 * 1024 * 1024;

export interface HttpAnswer {
  readonly status: number;
  readonly text: string;
}

/** Where a listener's host is reached from this machine. */
export function baseOf(host: string, port: number): string {
  const dialled = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host;
  return `http://${dialled.includes(':') ? `[${dialled}]` : dialled}:${port}`;
}

/** Undefined: nobody answered, or not within the bounds. */
export async function askHttp(url: string): Promise<HttpAnswer | undefined> {
  try {
    const signal = AbortSignal.timeout(ANSWER_MS_MAX);
    const answer = await fetch(url, { signal, redirect: 'error' });
    const pieces: Buffer[] = [];
    let bytes = 0;
    for await (const piece of answer.body ?? []) {
      bytes += piece.length;
      if (bytes > ANSWER_BYTES_MAX) return undefined;
      pieces.push(Buffer.from(piece));
    }
    return { status: answer.status, text: Buffer.concat(pieces).toString('utf8') };
  } catch {
    // Whoever asks says that nobody answered: there is nothing more to tell of it.
    return undefined;
  }
}
