import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import createClient from 'openapi-fetch';
import type { components, paths } from './schema.js';

const [, , baseUrl = '', key = '', picture = ''] = process.argv;
const client = createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${key}` } });
const own = () => ({ header: { 'Idempotency-Key': randomUUID() } });
const bytes = readFileSync(picture);
const image_base64 = bytes.toString('base64');
type Job = components['schemas']['Job'];

/** The synchronous endpoint can also answer with the picture. */
function succeeded(job: Job | string | undefined) {
  assert.ok(typeof job === 'object' && job.status === 'succeeded', JSON.stringify(job));
  return job;
}

const json = await client.POST('/v1/matting', {
  params: own(),
  body: { image_base64, correctable: true, output_width: 200 },
});
const job = succeeded(json.data);
assert.equal(job.result.width, 200);
const parts = new FormData();
parts.set('image_file', new Blob([bytes]), 'a.jpg');
parts.set('crop', 'true');
const form = await client.POST('/v1/matting', {
  params: own(),
  body: {},
  bodySerializer: () => parts,
});
succeeded(form.data);
const params = own();
const opened = await client.POST('/v1/matting/jobs', {
  params,
  body: { image_base64, reference: 'of TypeScript' },
});
const job_id = opened.data?.job_id ?? '';
let read: Job | undefined;
do {
  read = (await client.GET('/v1/matting/jobs/{job_id}', { params: { ...own(), path: { job_id } } }))
    .data;
} while (read?.status === 'queued' || read?.status === 'processing');
assert.equal(succeeded(read).reference, 'of TypeScript');
const path = { job_id: job.job_id };
const corrected = await client.POST('/v1/matting/jobs/{job_id}/corrections', {
  params: { ...own(), path },
  body: { background: 'white', keep: [{ box: [0, 0, 50, 50] }] },
});
assert.equal(corrected.data?.corrects, job.job_id);
const listed = await client.GET('/v1/matting/jobs', {
  params: { ...own(), query: { reference: 'of TypeScript' } },
});
assert.equal(listed.data?.jobs.length, 1);
const batch = await client.POST('/v1/matting/batches', {
  params: own(),
  body: { items: [{ image_url: `${baseUrl}/none.jpg`, reference: 'x' }], scale: '80%' },
});
const batch_id = batch.data?.batch_id ?? '';
const cancelled = await client.DELETE('/v1/matting/batches/{batch_id}', {
  params: { ...own(), path: { batch_id } },
});
assert.equal(cancelled.data?.batch_id, batch_id);
for (const { data } of [
  await client.GET('/v1/account', { params: own() }),
  await client.GET('/v1/models', { params: own() }),
  await client.GET('/v1/matting/batches', { params: own() }),
])
  assert.ok(data);
const wrong = await client.POST('/v1/matting', { params: own(), body: { image_base64: 'AAAA' } });
assert.equal(
  wrong.error?.code satisfies components['schemas']['ErrorCode'] | undefined,
  'UNSUPPORTED_IMAGE_FORMAT',
);
const token = job.result.url.split('/').pop() ?? '';
const file = await client.GET('/v1/results/{token}', {
  params: { path: { token } },
  parseAs: 'arrayBuffer',
});
assert.equal(
  Buffer.from(file.data ?? new ArrayBuffer())
    .subarray(1, 4)
    .toString(),
  'PNG',
);
