/**
 * A receiver of notifications: checks the signature, tells repeats by job_id, answers first and
 * works afterwards. Node 22.18 or later, no package: CALLBACK_SECRET=... node receiver.ts
 * It listens on http://localhost:8095: docs/webhooks.md, "Callbacks to your own machine".
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';

const TOLERANCE_S = 300;
const BODY_BYTES_MAX = 1_048_576;

const secret = process.env.CALLBACK_SECRET ?? '';
// whsec_ and Base64 stand for bytes, any other text for itself.
const key = secret.startsWith('whsec_')
  ? Buffer.from(secret.slice('whsec_'.length), 'base64')
  : Buffer.from(secret, 'utf8');
if (key.length < 24) throw new Error('set CALLBACK_SECRET to the callback_secret you submit with');

/** In your service: a table with job_id as its primary key. */
const done = new Set<string>();

function holds(id: string, timestamp: string, signatures: string, body: Buffer): boolean {
  const offS = Math.abs(Date.now() / 1000 - Number(timestamp));
  if (!/^\d+$/.test(timestamp) || offS > TOLERANCE_S) return false;
  const expected = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest();
  return signatures.split(' ').some(one => {
    const [version, base64 = ''] = one.split(',');
    const given = Buffer.from(base64, 'base64');
    return version === 'v1' && given.length === expected.length && timingSafeEqual(given, expected);
  });
}

const server = createServer(async (request, response) => {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += chunk.length;
    if (bytes > BODY_BYTES_MAX) return request.destroy();
    chunks.push(chunk);
  }
  // The bytes as they came: JSON that was read and written again is not what was signed.
  const body = Buffer.concat(chunks);
  const header = (name: string) => String(request.headers[name] ?? '');
  const [id, timestamp, signatures] = [
    header('webhook-id'),
    header('webhook-timestamp'),
    header('webhook-signature'),
  ];
  if (!holds(id, timestamp, signatures, body)) return response.writeHead(401).end();
  const event = JSON.parse(body.toString('utf8'));
  const repeat = done.has(event.job_id);
  done.add(event.job_id);
  response.writeHead(204).end();
  console.log(`${event.type} ${event.job_id}${repeat ? ' (a repeat)' : ''}`);
});

server.listen(Number(process.env.PORT ?? 8095), '127.0.0.1', () => {
  console.log(`listening on ${JSON.stringify(server.address())}`);
});
