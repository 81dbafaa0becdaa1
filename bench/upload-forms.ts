/**
 * What a photo of 10 MB costs the control plane by the form it is sent in: as the body itself, as
 * multipart/form-data, as Base64 in JSON. Processor time of its process for one submission
 * (asynchronous, nothing dispatched, SQLite), in turns within one run.
 * Needs: portal.
 */
import { randomBytes } from 'node:crypto';
import { Client } from 'undici';
import { pngHeader } from '../control-plane/core/test/support/test-app.ts';
import { startControlPlane } from './control-plane-process.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

const IMAGE_BYTES = 10_000_000;
const ROUNDS = 9;
/** The system counts a process's time in ticks of 10 ms. */
const SUBMISSIONS_A_ROUND = 20;
const BOUNDARY = '----formdata-0123456789abcdef';

const header = pngHeader(4000, 3000);
const image = Buffer.concat([header, randomBytes(IMAGE_BYTES - header.length)]);

interface Form {
  readonly type: string;
  readonly body: Buffer;
}

const head = [
  `--${BOUNDARY}`,
  'Content-Disposition: form-data; name="image_file"; filename="photo.png"',
  'Content-Type: image/png',
];
const FORMS = {
  picture: { type: 'image/png', body: image },
  multipart: {
    type: `multipart/form-data; boundary=${BOUNDARY}`,
    body: Buffer.concat([
      Buffer.from(`${head.join('\r\n')}\r\n\r\n`),
      image,
      Buffer.from(`\r\n--${BOUNDARY}--\r\n`),
    ]),
  },
  base64: {
    type: 'application/json',
    body: Buffer.from(`{"image_base64":"${image.toString('base64')}"}`),
  },
} as const satisfies Record<string, Form>;
type FormName = keyof typeof FORMS;

const plane = await startControlPlane();
const client = new Client(plane.origin);

/** Milliseconds of processor time for one submission. */
async function cpuMsOf({ type, body }: Form, submissions = SUBMISSIONS_A_ROUND): Promise<number> {
  const before = plane.cpuMs();
  for (let sent = 0; sent < submissions; sent += 1) {
    const answer = await client.request({
      method: 'POST',
      path: '/v1/matting/jobs',
      headers: { ...plane.headers(), 'content-type': type },
      body,
    });
    const text = await answer.body.text();
    if (answer.statusCode !== 202) throw new Error(`${answer.statusCode}: ${text}`);
  }
  return (plane.cpuMs() - before) / submissions;
}

try {
  const rounds: Record<FormName, number>[] = [];
  for (const form of Object.values(FORMS)) await cpuMsOf(form);
  for (let round = 0; round < ROUNDS; round += 1) {
    rounds.push({
      picture: await cpuMsOf(FORMS.picture),
      multipart: await cpuMsOf(FORMS.multipart),
      base64: await cpuMsOf(FORMS.base64),
    });
  }
  writeResults('upload-forms', {
    imageBytes: IMAGE_BYTES,
    pictureMs: median(rounds.map(({ picture }) => picture)),
    multipartMs: median(rounds.map(({ multipart }) => multipart)),
    base64Ms: median(rounds.map(({ base64 }) => base64)),
    pictureRatio: median(rounds.map(({ picture, base64 }) => picture / base64)),
    multipartRatio: median(rounds.map(({ multipart, base64 }) => multipart / base64)),
    peakMemoryMiB: plane.peakMemory() / 2 ** 20,
  });
} finally {
  await client.destroy();
  await plane.close();
}
