/** A receiver on loopback for developers: takes every delivery and checks its signature. */
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { signingKeyOf } from './callback-secret.ts';
import { wrongWithSignature } from './send-webhooks.ts';

/** A notification has about a kilobyte. */
const BODY_BYTES_MAX = 1_048_576;
/** Jobs remembered to recognise repeats; the oldest is dropped first. */
const JOBS_REMEMBERED_MAX = 10_000;

export interface ReceivedDelivery {
  readonly atMs: number;
  /** Undefined where the body names none. */
  readonly jobId: string | undefined;
  readonly type: string | undefined;
  /** Why its signature is not valid. */
  readonly wrong: string | undefined;
  /** A valid delivery for this job came before. */
  readonly repeat: boolean;
  /** Status of the answer. */
  readonly status: number;
  readonly body: string;
}

/**
 * Rejects with the system's error where the port is taken.
 * @param of.port 0: any free one
 * @param of.status answer to a delivery whose signature is valid; any other gets 401
 */
export async function openWebhookListener(
  { port, secret, status }: { port: number; secret: string; status: number },
  onDelivery: (delivery: ReceivedDelivery) => void,
) {
  const key = signingKeyOf(secret);
  const seen = new Set<string>();
  const server = createServer((request, response) => {
    receive(request).then(
      body => {
        const atMs = Date.now();
        const wrong = wrongWithSignature(key, request.headers, body, Math.floor(atMs / 1000));
        const { job_id: jobId, type } = eventOf(body);
        const repeat = wrong === undefined && jobId !== undefined && seen.has(jobId);
        if (wrong === undefined && jobId !== undefined) remember(seen, jobId);
        const answered = wrong === undefined ? status : 401;
        response.writeHead(answered).end();
        const delivery = { atMs, jobId, type, wrong, repeat, status: answered };
        onDelivery({ ...delivery, body: body.toString('utf8') });
      },
      // The sender broke off, or its body is too large: it gets no answer.
      () => response.destroy(),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', resolve);
  });
  const { port: bound } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${bound}/`, close: () => closeServer(server) };
}

async function closeServer(server: Server): Promise<void> {
  const closed = new Promise(resolve => server.close(resolve));
  server.closeAllConnections();
  await closed;
}

async function receive(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > BODY_BYTES_MAX) throw new Error('the body is too large');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function eventOf(body: Buffer): { job_id?: string | undefined; type?: string | undefined } {
  try {
    const event = JSON.parse(body.toString('utf8'));
    const text = (value: unknown) => (typeof value === 'string' ? value : undefined);
    return { job_id: text(event?.job_id), type: text(event?.type) };
  } catch {
    return {};
  }
}

function remember(seen: Set<string>, jobId: string): void {
  seen.add(jobId);
  if (seen.size <= JOBS_REMEMBERED_MAX) return;
  for (const oldest of seen) {
    seen.delete(oldest);
    return;
  }
}
