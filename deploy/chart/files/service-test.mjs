/**
 * Run by `helm test` in the control plane's image: the service answers through its Service, and
 * with an API key it cuts a picture out, also where nodes have to come first.
 */
import { deflateSync } from 'node:zlib';

const { SERVICE_URL: origin, API_KEY: key } = process.env;
const SIDE = 128;
const POLL_MS = 1000;

async function ask(path, { expected, ...options } = {}) {
  const answer = await fetch(new URL(path, origin), { redirect: 'follow', ...options });
  const bytes = Buffer.from(await answer.arrayBuffer());
  if (!expected.includes(answer.status)) {
    throw new Error(`${path}: ${answer.status} instead of ${expected}: ${bytes.subarray(0, 500)}`);
  }
  console.log(`ok ${path} ${answer.status}`);
  return bytes;
}

function crc32(bytes) {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  sum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, sum]);
}

/** A red disc on grey as PNG. */
function picture() {
  const rows = Array.from({ length: SIDE }, (_, y) => {
    const row = Buffer.alloc(1 + 3 * SIDE, 128);
    row[0] = 0;
    for (let x = 0; x < SIDE; x += 1) {
      const inside = Math.hypot(x - SIDE / 2, y - SIDE / 2) < SIDE / 3;
      if (inside) row.set([200, 40, 40], 1 + 3 * x);
    }
    return row;
  });
  const header = Buffer.alloc(13);
  header.writeUInt32BE(SIDE, 0);
  header.writeUInt32BE(SIDE, 4);
  header.set([8, 2, 0, 0, 0], 8);
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  const image = chunk('IDAT', deflateSync(Buffer.concat(rows)));
  return Buffer.concat([signature, chunk('IHDR', header), image, chunk('IEND', Buffer.alloc(0))]);
}

async function cutOut() {
  const headers = { authorization: `Bearer ${key}` };
  const submitted = await ask('/v1/matting/jobs', {
    method: 'POST',
    headers: {
      ...headers,
      'content-type': 'application/json',
      'idempotency-key': crypto.randomUUID(),
    },
    body: JSON.stringify({ image_base64: picture().toString('base64') }),
    expected: [202],
  });
  const { job_id: id } = JSON.parse(submitted);
  for (;;) {
    const read = { headers: { ...headers, 'idempotency-key': crypto.randomUUID() } };
    const job = JSON.parse(await ask(`/v1/matting/jobs/${id}`, { ...read, expected: [200] }));
    if (job.status === 'failed') throw new Error(`the job failed: ${JSON.stringify(job.error)}`);
    if (job.status === 'succeeded') {
      // The link begins with the address that callers use; this pod may only reach the Service.
      const link = new URL(job.result.url);
      const png = await ask(`${link.pathname}${link.search}`, { expected: [200] });
      if (png.readUInt32BE(16) !== SIDE) throw new Error('the cut-out has another size');
      return;
    }
    await new Promise(resolve => setTimeout(resolve, POLL_MS));
  }
}

await ask('/livez', { expected: [200] });
await ask('/readyz', { expected: [200] });
await ask('/v1/account', { expected: [401] });
if (key) await cutOut();
else console.log('no API key in tests.apiKeySecret: no picture was cut out');
