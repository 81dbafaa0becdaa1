/**
 * Twenty images of 50 MB at once, as Base64: what memory the control plane takes, and how long a
 * read of a job takes meanwhile.
 * Needs: portal.
 */
import { randomBytes } from 'node:crypto';
import { Client, Pool } from 'undici';
import { pngHeader } from '../control-plane/core/test/support/test-app.ts';
import { IMAGE_BYTES_MAX } from '../proto/contract/limits.ts';
import { startControlPlane } from './control-plane-process.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

const UPLOADS = 20;
const READ_PAUSE_MS = 10;

const header = pngHeader(8000, 8000);
const image = Buffer.concat([header, randomBytes(IMAGE_BYTES_MAX - header.length)]);
const body = Buffer.from(`{"image_base64":"${image.toString('base64')}"}`);
const plane = await startControlPlane();
const uploads = new Pool(plane.origin, { connections: UPLOADS });
const reader = new Client(plane.origin);

async function submit(content: Buffer | string): Promise<{ status: number; jobId: string }> {
  const answer = await uploads.request({
    method: 'POST',
    path: '/v1/matting/jobs',
    headers: { ...plane.headers(), 'content-type': 'application/json' },
    body: content,
  });
  const { job_id: jobId } = (await answer.body.json()) as { job_id: string };
  return { status: answer.statusCode, jobId };
}

try {
  const small = JSON.stringify({ image_base64: pngHeader(4, 4).toString('base64') });
  const { jobId } = await submit(small);
  const before = plane.peakMemory();
  let left = UPLOADS;
  const startedAtMs = performance.now();
  const answers = Array.from({ length: UPLOADS }, () =>
    submit(body).finally(() => {
      left -= 1;
    }),
  );
  const readMs: number[] = [];
  while (left > 0) {
    const readAtMs = performance.now();
    const path = `/v1/matting/jobs/${jobId}`;
    const answer = await reader.request({ method: 'GET', path, headers: plane.headers() });
    await answer.body.text();
    readMs.push(performance.now() - readAtMs);
    await new Promise(resolve => setTimeout(resolve, READ_PAUSE_MS));
  }
  const statuses = (await Promise.all(answers)).map(({ status }) => status);
  const seconds = (performance.now() - startedAtMs) / 1000;
  readMs.sort((a, b) => a - b);
  writeResults('large-uploads', {
    uploads: UPLOADS,
    bodyMiB: body.length / 2 ** 20,
    answered202: statuses.filter(status => status === 202).length,
    seconds,
    idlePeakMemoryMiB: before / 2 ** 20,
    peakMemoryMiB: plane.peakMemory() / 2 ** 20,
    reads: readMs.length,
    readMedianMs: median(readMs),
    readWorstMs: readMs.at(-1),
  });
} finally {
  await Promise.all([uploads.destroy(), reader.destroy()]);
  await plane.close();
}
