/** Two versions on one database answer for each other. Needs: object-storage. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { Fleet } from '../fleet/fleet.ts';
import { THIS_VERSION } from '../fleet/installed-version.ts';
import type { FleetControlPlane } from '../fleet/program.ts';
import { uniformPicture } from '../fleet/steady-load.ts';
import type { WireJob } from '../running-service.ts';
import { until } from '../support/processes.ts';

const JOBS = '/v1/matting/jobs';
const END_MS_MAX = 120_000;

/** Built for each sending, since a form can be read once. */
interface Form {
  readonly name: string;
  readonly query: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: () => string | Uint8Array<ArrayBuffer> | FormData;
}

type Answer = WireJob & {
  readonly status: string;
  readonly http: number;
  readonly replayed: boolean;
};

/** One picture in every form of the body, with and without finishing. */
function formsOf(file: Uint8Array<ArrayBuffer>): readonly Form[] {
  const json = (fields: object) => ({
    query: '',
    headers: { 'content-type': 'application/json' },
    body: () => JSON.stringify({ image_base64: Buffer.from(file).toString('base64'), ...fields }),
  });
  const finished = { background: '#fff', crop: true, output_format: 'jpeg' };
  return [
    { name: 'JSON', ...json({}) },
    { name: 'JSON with a format', ...json({ output_format: 'webp' }) },
    { name: 'JSON with finishing', ...json(finished) },
    {
      name: 'the picture itself',
      query: '?output_format=webp&scale=80%25',
      headers: { 'content-type': 'image/png' },
      body: () => file,
    },
    {
      name: 'a form',
      query: '',
      headers: {},
      body: () => {
        const form = new FormData();
        form.append('image_file', new Blob([file]), 'picture.png');
        form.append('channels', 'alpha');
        return form;
      },
    },
  ];
}

/** Each sends the other's results; resolves to the number of pictures. */
export async function requireSideBySide(
  fleet: Fleet,
  one: FleetControlPlane,
  other: FleetControlPlane,
): Promise<number> {
  assert.notEqual(one.version, other.version);
  const { file } = await uniformPicture(11);
  const forms = formsOf(Uint8Array.from(file));
  for (const [first, second] of [
    [one, other],
    [other, one],
  ] as const) {
    for (const form of forms) await requireSameRequest(fleet, form, first, second);
  }
  return 2 * forms.length;
}

async function requireSameRequest(
  { apiKey }: Fleet,
  form: Form,
  first: FleetControlPlane,
  second: FleetControlPlane,
): Promise<void> {
  const where = `${form.name}, taken by ${first.version.name}, again to ${second.version.name}`;
  const key = randomUUID();
  const ask = async (plane: FleetControlPlane, place: string, init: RequestInit) => {
    const answer = await fetch(`${plane.url}${place}`, {
      ...init,
      headers: {
        authorization: `Bearer ${apiKey}`,
        'idempotency-key': key,
        ...(init.headers as Record<string, string>),
      },
    });
    const replayed = answer.headers.get('idempotent-replayed') === 'true';
    return { ...((await answer.json()) as WireJob), http: answer.status, replayed } as Answer;
  };
  const submit = (plane: FleetControlPlane, { query, headers, body } = form) =>
    ask(plane, JOBS + query, { method: 'POST', headers, body: body() });
  const read = (plane: FleetControlPlane, { job_id: jobId }: Answer) =>
    ask(plane, `${JOBS}/${jobId}`, {});

  const taken = await submit(first);
  assert.equal(taken.http, 202, `${where}: ${JSON.stringify(taken)}`);
  assert.equal((await submit(second)).job_id, taken.job_id, where);
  let job = taken;
  const isFinal = async () => {
    job = await read(second, taken);
    return job.status !== 'queued' && job.status !== 'processing';
  };
  await until(isFinal, {
    timeoutMs: END_MS_MAX,
    what: `the end of ${where}`,
    detail: () => JSON.stringify(job),
  });
  assert.equal(job.status, 'succeeded', `${where}: ${JSON.stringify(job)}`);
  const answers = [await read(first, taken), job];
  const [older, newer] = first.version === THIS_VERSION ? answers.reverse() : answers;
  // The newer version may say more.
  assert.partialDeepStrictEqual(newer, older, where);
  const again = await submit(second);
  assert.deepEqual([again.http, again.replayed, again.job_id], [200, true, taken.job_id], where);
  const different = await submit(second, {
    ...form,
    query: form.query === '' ? '' : `${form.query}&output_width=7`,
    body: () => withOneFieldMore(form.body()),
  });
  assert.deepEqual([different.http, different.code], [409, 'IDEMPOTENCY_CONFLICT'], where);
  const files = await Promise.all(
    [first, second].map(async plane => {
      const answer = await fetch(plane.url + new URL(job.result?.url ?? '').pathname);
      assert.equal(answer.status, 200, where);
      return Buffer.from(await answer.arrayBuffer());
    }),
  );
  assert.deepEqual(files[0], files[1], where);
}

function withOneFieldMore(body: ReturnType<Form['body']>): ReturnType<Form['body']> {
  if (typeof body === 'string') return JSON.stringify({ ...JSON.parse(body), output_width: 7 });
  if (body instanceof FormData) body.append('output_width', '7');
  return body;
}
