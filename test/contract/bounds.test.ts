/** Every bound at its maximum, through real ports, with a fake engine. Needs: batches, mcp. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava, { type ExecutionContext } from 'ava';
import { BATCH_ITEMS_MAX } from '../../control-plane/batches/batch.ts';
import { until } from '../../control-plane/core/test/harness.ts';
import { Receiver } from '../../control-plane/core/test/receiver.ts';
import type { Caller } from '../../control-plane/core/test/support/replicas.ts';
import { pngHeader } from '../../control-plane/core/test/support/test-app.ts';
import { FORM_TYPE, formOf, imagePart, type Part } from '../../control-plane/http/test/forms.ts';
import { type LoopbackSource, openSource } from '../../control-plane/http/test/loopback-source.ts';
import { Agent } from '../../control-plane/mcp/test/mcp-client.ts';
import { TEST_TOKEN } from '../../control-plane/nodes/test/scripted-node.ts';
import { Replicas } from '../../control-plane/test/programs.ts';
import { openTestNode, type TestNode } from '../../inference-node/serving/test/test-node.ts';
import { FINISHING_FIELDS, rowOf } from '../../proto/contract/finishing/table.ts';
import { HINT_POINTS_MAX, HINT_SHAPES_MAX } from '../../proto/contract/hints.ts';
import { HINT_LIST_BYTES_MAX } from '../../proto/contract/hints-fields.ts';
import {
  BACKGROUND_BYTES_MAX,
  IDEMPOTENCY_KEY_LENGTH_MAX,
  IMAGE_BYTES_MAX,
  URL_LENGTH_MAX,
} from '../../proto/contract/limits.ts';

const test = ava.serial;

const SECRET_LENGTH_MAX = 128;
const REFERENCE_LENGTH_MAX = 128;

let replicas: Replicas;
let node: TestNode;
let caller: Caller;
let agent: Agent;
let source: LoopbackSource;

test.before(async () => {
  source = await openSource((_request, response) => {
    response.writeHead(200, { 'content-type': 'image/png' }).end(IMAGE);
  });
  replicas = await Replicas.open('sqlite', {
    replicas: 1,
    env: {
      MATTING_ALLOWED_NETWORKS: '127.0.0.1/32',
      MATTING_ALLOW_HTTP_CALLBACKS: 'true',
      MATTING_FETCH_PORTS: `${source.port}`,
    },
  });
  caller = await replicas.createCaller(10_000);
  const bootId = randomUUID();
  const limits = { imagesMax: 16, megapixelsMax: 1000, megapixelsAloneMax: 1000 };
  const capabilities = { inputFormats: ['png'], outputFormats: ['png', 'webp'] } as const;
  node = await openTestNode({ token: TEST_TOKEN, bootId, limits, capabilities });
  const { address } = node;
  const registration = { nodeId: 'node-1', bootId, address, httpAddress: '', version: 'test' };
  await replicas.stores.nodes.register(registration, 600_000);
  await until(async () => (await fetch(replicas.url(0, '/readyz'))).ok, 'readiness');
  agent = await Agent.at(replicas.plane(0).ports.http, caller.token);
});

test.after.always(async () => {
  await agent?.client.close();
  await replicas?.close();
  await node?.close();
  await source?.[Symbol.asyncDispose]();
});

type Fields = Readonly<Record<string, unknown>>;
interface Files {
  readonly image?: Buffer;
  readonly hints?: Buffer;
  readonly background?: Buffer;
}

const filled = (bytes: number, width: number, height: number) => {
  const file = Buffer.alloc(bytes, randomUUID());
  pngHeader(width, height).copy(file);
  return file;
};
const IMAGE = filled(100, 100, 80);
/** Four bytes of UTF-8 and two UTF-16 units each. */
const REFERENCE = '🖼'.repeat(REFERENCE_LENGTH_MAX);
const KEY = () => randomUUID().padEnd(IDEMPOTENCY_KEY_LENGTH_MAX, '~');

/** The most shapes and points, in the longest text. */
const LINES = Array.from({ length: HINT_SHAPES_MAX }, (_, shape) => ({
  line: Array.from({ length: HINT_POINTS_MAX / HINT_SHAPES_MAX }, (_none, at) => [
    Number((1 + shape / 70).toFixed(9)),
    Number((1 + at / 30).toFixed(9)),
  ]),
  radius: 1.2345678901234567,
}));
const WRITTEN = JSON.stringify(LINES).padEnd(HINT_LIST_BYTES_MAX, ' ');

/** Cannot be combined with a field of FINISHING. */
const APART: readonly string[] = ['background_url', 'channels', 'output_height'];
/** All fields that combine: an example, or the longest value. */
const FINISHING: Fields = {
  ...Object.fromEntries(
    FINISHING_FIELDS.filter(field => !APART.includes(field)).map(field => [
      field,
      rowOf(field).schema.examples[0],
    ]),
  ),
  background: 'lightgoldenrodyellow',
  crop: true,
  crop_margin: '33.333333333% 44.444444444% 55.555555555% 66.666666666%',
  scale: '33.333333333%',
  position: '33.333333333% 66.666666666%',
  size_max_megapixels: 33.333333333,
  output_width: 4000,
  aspect_ratio: '33.333333333:66.666666666',
  enlarge: false,
  quality: 99,
  roi: '1.111111111% 2.222222222% 98.888888888% 97.777777777%',
  shadow: 'drop',
  shadow_opacity: 33.333333333,
  shadow_blur: 3.333333333,
  shadow_offset: '13.333333333 16.666666666',
};

const text = (value: unknown) => (typeof value === 'object' ? JSON.stringify(value) : `${value}`);
const partsOf = (fields: Fields, { image, hints, background }: Files): Part[] => [
  ...(image ? [imagePart(image)] : []),
  ...(hints ? [imagePart(hints, 'hints_file')] : []),
  ...(background ? [imagePart(background, 'background_file')] : []),
  ...Object.entries(fields).map(([name, value]) => ({ name, body: text(value) })),
];

async function sent(path: string, body: Buffer | string, headers: Record<string, string>) {
  const response = await fetch(replicas.url(0, path), {
    method: 'POST',
    headers: { authorization: `Bearer ${caller.token}`, 'idempotency-key': KEY(), ...headers },
    body: typeof body === 'string' ? body : new Uint8Array(body),
  });
  const answer = await response.text();
  assert.ok(response.ok, `${response.status} ${answer}`);
  return JSON.parse(answer);
}

type Door = (fields: Fields, files: Files) => Promise<{ readonly job_id: string }>;

const JSON_TYPE = { 'content-type': 'application/json' };
const byJson =
  (path: string): Door =>
  (fields, { image }) => {
    const given = { ...fields, ...(image && { image_base64: image.toString('base64') }) };
    // WRITTEN is JSON already.
    const written = Object.entries(given).map(
      ([name, value]) => `"${name}":${value === WRITTEN ? value : JSON.stringify(value)}`,
    );
    return sent(path, `{${written}}`, JSON_TYPE);
  };
const byForm =
  (path: string): Door =>
  (fields, files) =>
    sent(path, formOf(partsOf(fields, files)), FORM_TYPE);
const byRaw: Door = (fields, { image = IMAGE }) => {
  const query = Object.entries(fields).map(([name, value]): [string, string] => [
    name,
    text(value),
  ]);
  return sent(`/v1/matting/jobs?${new URLSearchParams(query)}`, image, {
    'content-type': 'image/png',
  });
};
async function byAgent(tool: string, given: Fields): Promise<{ readonly job_id: string }> {
  const {
    text: said,
    fields,
    isError,
  } = await agent.call(tool, {
    idempotency_key: KEY(),
    ...given,
  });
  assert.ok(!isError, said);
  return fields;
}

const DOORS = {
  JSON: byJson('/v1/matting/jobs'),
  'a form': byForm('/v1/matting/jobs'),
  'a raw body': byRaw,
  'an agent': (fields, { image }) =>
    byAgent('remove_background', {
      ...fields,
      ...(image && { image_base64: image.toString('base64') }),
    }),
  'a correction in JSON': async fields => byJson(await correctionsPath())(fields, {}),
  'a correction in a form': async (fields, { image: _first, ...files }) =>
    byForm(await correctionsPath())(fields, files),
  "an agent's correction": async fields =>
    byAgent('correct_cutout', { ...fields, job_id: await correctableJob() }),
} satisfies Record<string, Door>;

let correctable: Promise<string> | undefined;
function correctableJob(): Promise<string> {
  const made = async () => done(await DOORS.JSON({ correctable: true }, { image: IMAGE }));
  correctable ??= made().then(job => job.job_id as string);
  return correctable;
}
const correctionsPath = async () => `/v1/matting/jobs/${await correctableJob()}/corrections`;

async function done({ job_id: id }: { readonly job_id: string }) {
  const find = async () => (await replicas.get(caller, `/v1/matting/jobs/${id}`)).body;
  await until(async () => ['succeeded', 'failed'].includes((await find()).status), 'its end');
  const job = await find();
  assert.equal(job.status, 'succeeded', JSON.stringify(job));
  return job;
}

const longest = (url: string) => `${url}?`.padEnd(URL_LENGTH_MAX, 'a');

interface Bound {
  readonly fields?: Fields;
  readonly files?: Files;
  readonly doors: readonly (keyof typeof DOORS)[];
  readonly check?: (t: ExecutionContext, job: Record<string, unknown>) => void;
}

const SHAPES = ['JSON', 'a form', 'a correction in JSON', 'a correction in a form'] as const;
const sentHints = (t: ExecutionContext, field: 'keep' | 'erase') => {
  const { hints } = node.pictures.finished.at(-1)!;
  const points = hints?.[field]?.flatMap(shape => ('line' in shape ? shape.line : []));
  t.deepEqual([hints?.[field]?.length, points?.length], [HINT_SHAPES_MAX, HINT_POINTS_MAX]);
};

const BOUNDS: Readonly<Record<string, Bound>> = {
  '64 shapes with 4,096 points to keep': {
    fields: { keep: LINES },
    doors: [...SHAPES, "an agent's correction"],
    check: t => sentHints(t, 'keep'),
  },
  '64 shapes with 4,096 points to erase': {
    fields: { erase: LINES },
    doors: [...SHAPES, "an agent's correction"],
    check: t => sentHints(t, 'erase'),
  },
  'a list of 128 KiB': {
    fields: { keep: WRITTEN },
    doors: ['JSON', 'a form', 'a correction in JSON', 'a correction in a form'],
    check: t => sentHints(t, 'keep'),
  },
  'a reference of 128 characters': {
    fields: { reference: REFERENCE },
    doors: ['JSON', 'a form', 'a raw body', 'a correction in JSON', 'a correction in a form'],
    check: (t, job) => t.is(job.reference, REFERENCE),
  },
  'the fields of finishing together': {
    fields: { output_format: 'webp', ...FINISHING },
    doors: ['JSON', 'a form', 'a raw body', 'an agent', 'a correction in JSON'],
  },
  'an image of 50 MB and 100 megapixels': {
    files: { image: filled(IMAGE_BYTES_MAX, 10_000, 10_000) },
    doors: ['JSON', 'a form', 'a raw body', 'an agent'],
    check: t => t.is(node.pictures.decoded.at(-1)?.file.length, IMAGE_BYTES_MAX),
  },
  'a file of hints and a background, each of 10 MB and 25 megapixels': {
    files: {
      image: IMAGE,
      hints: filled(BACKGROUND_BYTES_MAX, 5000, 5000),
      background: filled(BACKGROUND_BYTES_MAX, 5000, 5000),
    },
    doors: ['a form', 'a correction in a form'],
    check: t => {
      const { hints, background } = node.pictures.decoded.at(-1)!;
      t.is(hints?.file.length, BACKGROUND_BYTES_MAX);
      t.is(background?.file.length, BACKGROUND_BYTES_MAX);
    },
  },
};

for (const [what, { fields = {}, files = { image: IMAGE }, doors, check }] of Object.entries(
  BOUNDS,
)) {
  for (const door of doors) {
    test(`${what} › by ${door}`, async t => {
      const job = await done(await DOORS[door](fields, files));
      t.is(job.status, 'succeeded');
      check?.(t, job);
    });
  }
}

for (const door of ['JSON', 'a form'] as const) {
  test(`a URL, a callback's URL and its secret at their longest › by ${door}`, async t => {
    const secret = 's'.repeat(SECRET_LENGTH_MAX);
    await using receiver = await Receiver.open(secret);
    const image_url = longest(`${source.url}/photo.png`);
    const callback_url = longest(receiver.url());
    const fields = { image_url, callback_url, callback_secret: secret, reference: REFERENCE };
    const job = await done(await DOORS[door](fields, {}));
    await until(() => receiver.deliveries.length > 0, 'the notification');
    t.true(receiver.deliveries[0]?.signatureHolds);
    t.is(job.reference, REFERENCE);
  });
}

test('a URL at its longest › by an agent', async t => {
  await done(await DOORS['an agent']({ image_url: longest(`${source.url}/photo.png`) }, {}));
  t.truthy(source.requests.at(-1));
});

test('a batch of 1,000 items with the longest URLs and references', async t => {
  const items = Array.from({ length: BATCH_ITEMS_MAX }, (_, item) => ({
    image_url: longest(`${source.url}/${item}`),
    reference: REFERENCE,
  }));
  const body = JSON.stringify({ items, ...FINISHING, output_format: 'webp' });
  const escaped = body.replaceAll(/[\u{80}-\u{10ffff}]/gu, character =>
    [...Array(character.length).keys()]
      .map(unit => `\\u${character.charCodeAt(unit).toString(16)}`)
      .join(''),
  );
  const { batch_id: id, counts } = await sent('/v1/matting/batches', escaped, JSON_TYPE);
  t.is(
    Object.values(counts as Record<string, number>).reduce((sum, count) => sum + count),
    1000,
  );
  const answer = await fetch(replicas.url(0, `/v1/matting/batches/${id}`), {
    method: 'DELETE',
    headers: { authorization: `Bearer ${caller.token}`, 'idempotency-key': KEY() },
  });
  t.is(answer.status, 200);
});
