/**
 * Walks every way to submit an image by the table of ARCHITECTURE.md. A request starts with every
 * fault that its door checks. Each answer must name the first remaining fault in the table's order;
 * the next request has one fault less. A repeated request must find its job despite everything that
 * refuses new ones. Needs: batches, removebg, photoroom, rembg, mcp, portal.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { withBatches } from '@matting/batches/test/fixtures.ts';
import { BASE_URL, pngHeader } from '@matting/core/test/support/test-app.ts';
import type { Answered } from '@matting/http/answer-log.ts';
import { FORM_TYPE, formOf, imagePart } from '@matting/http/test/forms.ts';
import { ABILITIES } from '@matting/nodes/test/nodes-seen.ts';
import { createSecret } from '@matting/portal/session/secret.ts';
import { type SignedInBrowser, signIn } from '@matting/portal/test/signed-in-browser.ts';
import { CAPABILITIES } from '@matting/proto/contract/capabilities.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import ava, { type ExecutionContext } from 'ava';
import { sql } from 'kysely';
import { openTestApp, type ProgramApp } from '../../control-plane/test/app.ts';
import { routesOf } from '../support/printed-routes.ts';
import { sameNames } from '../support/same-names.ts';
import { until } from '../support/waiting.ts';

const CHECKS = {
  Key: 'INVALID_API_KEY',
  'Idempotency-Key': 'INVALID_IDEMPOTENCY_KEY',
  Rate: 'RATE_LIMITED',
  'Media type': 'UNSUPPORTED_MEDIA_TYPE',
  'Declared bytes': 'IMAGE_TOO_LARGE',
  Body: 'INVALID_REQUEST INVALID_PARAMETER',
  Nodes: 'UNSUPPORTED_OUTPUT_FORMAT',
  Callback: 'INVALID_CALLBACK',
  'In flight': 'RATE_LIMITED',
  Room: 'SERVICE_UNAVAILABLE',
  Credit: 'INSUFFICIENT_CREDITS',
  Cap: 'KEY_CAP_REACHED',
} as const;
type Check = keyof typeof CHECKS;
const ORDER = Object.keys(CHECKS) as Check[];

interface Row {
  /** `POST /v1/matting, form`: the form distinguishes doors of one route. */
  readonly door: string;
  readonly cells: Readonly<Record<Check, string>>;
}

const page = await readFile(new URL('../../ARCHITECTURE.md', import.meta.url), 'utf8');
const ROWS = rowsOf(page);

/** A line has several doors, and the checks that differ from `✓`. */
function rowsOf(markdown: string): Row[] {
  const [, section = ''] = markdown.split('\n## Doors for images\n');
  const [table = ''] = section.split('\n## ');
  assert.ok(table.includes(`\n${ORDER.join(', ')}.\n`), 'the checks in their order');
  return [...table.matchAll(/^\| (`.*) \| (.*) \|$/gm)].flatMap(([, doors = '', others = '']) => {
    const differ = others === 'none' ? [] : others.split(', ').map(one => /^(.+) (\w+)$/.exec(one));
    const cells = Object.fromEntries(ORDER.map(check => [check, '✓'])) as Record<Check, string>;
    for (const match of differ) {
      const [, check = '', cell = ''] = match ?? [];
      assert.ok(check in cells, others);
      cells[check as Check] = cell;
    }
    return doors.split('; ').map(door => ({ door: door.replaceAll('`', ''), cells }));
  });
}

/** Keeps the bytes for a later call. */
const MAKES_NO_JOB = ['PUT /mcp/uploads/:token'];

const IMAGE = Buffer.concat([pngHeader(40, 30), Buffer.from(randomUUID())]);
const CALLBACK = {
  callback_url: 'https://hooks.example.com/matting',
  callback_secret: 'a secret of more than 24 characters',
};
const DECLARED_BYTES = 200 * 1_048_576;

const BATCHES = '/v1/matting/batches';

const test = ava.serial;

class World {
  readonly app: ProgramApp;
  readonly wrong = new Set<Check>();
  readonly idempotencyKey = randomUUID();
  readonly once = createSecret();
  /** Runs once while a callback's name is resolved, which then refuses. */
  meanwhile: (() => Promise<unknown>) | undefined;
  readonly #answered: Answered[];
  person!: SignedInBrowser;
  /** A correctable job of `key`. */
  corrected!: string;
  readonly #imageIds = new Map<string, string>();
  /** Finished, with a failed item, by key. */
  readonly #batches = new Map<string, string>();
  /** Its cap has room for one more job. */
  key!: string;
  #spent!: { readonly cap: string; readonly open: string };

  private constructor(app: ProgramApp, answered: Answered[]) {
    this.app = app;
    this.#answered = answered;
  }

  static async open(
    t: ExecutionContext,
    wrong: ReadonlySet<Check>,
    ofPlayground: boolean,
  ): Promise<World> {
    const answered: Answered[] = [];
    const accountArea = { canSignIn: true, oidc: undefined, playgroundImages: 1 } as const;
    const settings = {
      photoroom: {},
      rembg: { standInKeyId: undefined },
      portal: { accountArea },
    };
    const world: World = new World(
      await openTestApp(
        {
          ...{ settings, credits: 3, jobsInFlightMax: 1, syncWaitMs: 0 },
          onAnswered: one => void answered.push(one),
          resolveHost: () => world.#resolve(),
        },
        t,
      ),
      answered,
    );
    world.#limitRate();
    await world.#fill(ofPlayground);
    for (const check of wrong) world.wrong.add(check);
    world.#switch();
    return world;
  }

  async #fill(ofPlayground: boolean): Promise<void> {
    const { app } = this;
    const capOf = (credits: number) => ({ cap: { credits, period: 'total' } }) as const;
    this.key = await app.createKey(capOf(2));
    const cap = await app.createKey(capOf(1));
    this.person = await signIn(app);
    for (const key of [this.key, cap]) this.#batches.set(key, await this.#failedBatch(key));
    const tried = await this.#playground();
    const paid = await this.#submit(this.key, { correctable: true });
    for (const job of [tried, paid]) await app.succeedJob(job);
    this.corrected = ofPlayground ? tried : paid;
    await app.succeedJob(await this.#submit(cap));
    for (const key of [this.key, cap]) this.#imageIds.set(key, await this.#upload(key));
    const open = await this.#submit(app.token);
    this.#spent = { cap, open };
  }

  /** Last, because so low a rate could not prepare the rest. */
  #limitRate(): void {
    const { rateLimits } = this.app.services;
    const take = rateLimits.take.bind(rateLimits);
    rateLimits.take = async (...of) => {
      const state = await take(...of);
      return this.wrong.has('Rate') ? { ...state, allowed: false } : state;
    };
  }

  async #resolve(): Promise<string[]> {
    const { meanwhile } = this;
    this.meanwhile = undefined;
    await meanwhile?.();
    return [this.wrong.has('Callback') || meanwhile ? '10.0.0.1' : '93.184.215.14'];
  }

  async finish(): Promise<void> {
    for (const { id } of await this.app.stores.queue.listClaimable(1000))
      await this.app.succeedJob(id);
  }

  async #submit(key: string, more: object = {}): Promise<string> {
    const body = { image_base64: pngHeader(4, 3).toString('base64'), ...more };
    const answer = await this.app.post('/v1/matting/jobs', body, {
      authorization: `Bearer ${key}`,
    });
    assert.equal(answer.statusCode, 202, answer.body);
    return answer.json().job_id;
  }

  async #failedBatch(key: string): Promise<string> {
    const body = { items: [{ image_url: 'https://images.example.com/1.jpg' }] };
    const headers = { authorization: `Bearer ${key}` };
    const { batch_id: id } = (await this.app.post(BATCHES, body, headers)).json();
    const { batches } = withBatches(this.app.database, this.app.stores);
    await batches.enterItems(id, this.app.accountId, 10);
    const { body: line } = await this.app.get(`${BATCHES}/${id}/results`, headers);
    const failure = { code: 'NO_SUBJECT', detail: 'none', retryable: false } as const;
    await this.app.failJob(JSON.parse(line).job_id, failure);
    assert.ok(await batches.finishBatch(id));
    return id;
  }

  async #playground(): Promise<string> {
    const answer = await this.page('/account/playground', true, createSecret());
    assert.equal(answer.statusCode, 303, answer.body);
    return String(answer.headers.location).slice('/account/playground/'.length);
  }

  async #upload(key: string): Promise<string> {
    const made = await this.mcp('create_upload', {}, key);
    const { upload_url: url, image_id: id } = made.json().result.structuredContent;
    const { pathname } = new URL(url);
    const put = await this.app.app.inject({ method: 'PUT', url: pathname, payload: IMAGE });
    assert.equal(put.statusCode, 201, put.body);
    return id;
  }

  #switch(): void {
    const { app, wrong } = this;
    app.advertise(
      wrong.has('Nodes')
        ? [{ ...ABILITIES, outputFormats: new Set(['avif']), capabilities: new Set(CAPABILITIES) }]
        : undefined,
    );
    app.refuseNewJobs(
      wrong.has('Room')
        ? new ContractError('SERVICE_UNAVAILABLE', 'The queue is full.')
        : undefined,
    );
  }

  async right(check: Check): Promise<void> {
    this.wrong.delete(check);
    if (check === 'In flight') await this.app.succeedJob(this.#spent.open);
    if (check === 'Credit') {
      await sql`update playgrounds set used = 0`.execute(this.app.database.kysely);
      await this.app.stores.ledger.grant(this.app.accountId, 1, randomUUID());
    }
    this.#switch();
  }

  /** Refuses any new job, without faults in the request. */
  refuseNew(): void {
    for (const check of ['Nodes', 'Callback', 'Room'] as const) this.wrong.add(check);
    this.#switch();
  }

  get imageId(): string {
    return this.#imageIds.get(this.token) ?? randomUUID();
  }

  get batchId(): string {
    return this.#batches.get(this.token) ?? randomUUID();
  }

  get token(): string {
    if (this.wrong.has('Key')) return 'mk_unknown';
    return this.wrong.has('Cap') ? this.#spent.cap : this.key;
  }

  headers(more: Record<string, string> = {}): Record<string, string> {
    return {
      authorization: `Bearer ${this.token}`,
      ...(this.wrong.has('Idempotency-Key') ? {} : { 'idempotency-key': this.idempotencyKey }),
      ...more,
      ...(this.wrong.has('Media type') ? { 'content-encoding': 'gzip' } : {}),
      ...(this.wrong.has('Declared bytes') ? { 'content-length': String(DECLARED_BYTES) } : {}),
    };
  }

  json(url: string, body: object) {
    const payload = JSON.stringify({ ...body, ...(this.wrong.has('Body') ? { colour: '1' } : {}) });
    return this.send({
      url,
      headers: this.headers({ 'content-type': 'application/json' }),
      payload,
    });
  }

  form(url: string, fields: Record<string, string>, { image = 'image_file', wrong = 'crop' } = {}) {
    const texts = { ...fields, ...(this.wrong.has('Body') ? { [wrong]: 'neither' } : {}) };
    const parts = Object.entries(texts).map(([name, body]) => ({ name, body }));
    const payload = formOf([...parts, imagePart(IMAGE, image)]);
    return this.send({ url, headers: this.headers(FORM_TYPE), payload });
  }

  raw(url: string) {
    const query = this.wrong.has('Body') ? '?colour=1' : '';
    const headers = this.headers({ 'content-type': 'image/png' });
    return this.send({ url: `${url}${query}`, headers, payload: IMAGE });
  }

  /** The order is the page's: session token, form token, image. */
  page(url: string, image: boolean, once = this.once) {
    const texts = {
      csrf: this.person.csrf,
      once,
      ...(this.wrong.has('Body') ? { colour: '1' } : {}),
    };
    const parts = Object.entries(texts).map(([name, body]) => ({ name, body }));
    const { 'content-length': declared, 'content-encoding': encoding } = this.headers();
    const headers = {
      ...{
        cookie: this.wrong.has('Key') ? '' : this.person.cookieHeader,
        origin: BASE_URL,
        accept: 'text/html',
        ...FORM_TYPE,
      },
      ...(declared === undefined ? {} : { 'content-length': declared }),
      ...(encoding === undefined ? {} : { 'content-encoding': encoding }),
    };
    return this.send({
      url,
      headers,
      payload: formOf([...parts, ...(image ? [imagePart(IMAGE)] : [])]),
    });
  }

  mcp(name: string, given: object, token = this.token) {
    const headers = {
      ...this.headers({ 'content-type': 'application/json' }),
      authorization: `Bearer ${token}`,
      accept: 'application/json, text/event-stream',
    };
    const sent = {
      ...given,
      ...(this.wrong.has('Body') && name !== 'create_upload' ? { colour: '1' } : {}),
    };
    const params = { name, arguments: sent };
    const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params };
    return this.send({ url: '/mcp', headers, payload: JSON.stringify(message) });
  }

  send(request: {
    url: string;
    method?: 'GET';
    headers: Record<string, string>;
    payload?: string | Buffer;
  }) {
    return this.app.app.inject({ method: 'POST', ...request });
  }

  /** From the log; undefined: not refused. */
  async codeOf(send: () => ReturnType<World['send']>): Promise<string | undefined> {
    const before = this.#answered.length;
    const { statusCode, headers, body } = await send();
    await until('the answer is logged', () => this.#answered.length > before);
    const { code } = this.#answered.at(-1)!;
    if (code !== undefined) return code;
    // Pages answer in their own way.
    if (statusCode === 303 && String(headers.location).includes('sign-in')) return CHECKS.Key;
    if (statusCode === 429) return CHECKS.Credit;
    return statusCode < 400 ? undefined : `${statusCode} ${/<title>.*<\/title>/.exec(body)?.[0]}`;
  }

  /** With waiting items of batches. */
  async made(): Promise<number> {
    const { kysely } = this.app.database;
    const [jobs, items] = await Promise.all(
      (['jobs', 'batch_items'] as const).map(table =>
        kysely
          .selectFrom(table)
          .select(eb => eb.fn.countAll<number>().as('count'))
          .executeTakeFirstOrThrow(),
      ),
    );
    return Number(jobs?.count) + Number(items?.count);
  }
}

type Send = (world: World) => ReturnType<World['send']>;

const base64 = IMAGE.toString('base64');
const JOBS = '/v1/matting/jobs';
const SENDS: Readonly<Record<string, Send>> = {
  'POST /v1/matting, JSON': one => one.json('/v1/matting', { image_base64: base64, ...CALLBACK }),
  'POST /v1/matting, form': one => one.form('/v1/matting', CALLBACK),
  'POST /v1/matting, image': one => one.raw('/v1/matting'),
  'POST /v1/matting/jobs': one => one.json(JOBS, { image_base64: base64, ...CALLBACK }),
  'POST /v1/matting/jobs/:jobId/corrections': one =>
    one.json(`${JOBS}/${one.corrected}/corrections`, CALLBACK),
  'POST /v1/matting/batches': one =>
    one.json(BATCHES, {
      items: [{ image_url: 'https://images.example.com/1.jpg' }],
      ...CALLBACK,
    }),
  'POST /v1/matting/batches/:batchId/again': one =>
    one.json(`${BATCHES}/${one.batchId}/again`, CALLBACK),
  'POST /v1.0/removebg': one => one.form('/v1.0/removebg', { size: 'full' }),
  'POST /compat/photoroom/v1/segment': one => one.form('/compat/photoroom/v1/segment', {}),
  'POST /compat/rembg/api/remove': one =>
    one.form('/compat/rembg/api/remove', {}, { image: 'file', wrong: 'model' }),
  'GET /compat/rembg/api/remove': one => {
    const query = `url=https%3A%2F%2Fimages.example.com%2F1.jpg${one.wrong.has('Body') ? '&model=?' : ''}`;
    const url = `/compat/rembg/api/remove?${query}`;
    return one.send({ method: 'GET', url, headers: one.headers() });
  },
  'POST /mcp, image_base64': one => one.mcp('remove_background', { image_base64: base64 }),
  'POST /mcp, image_id': one => one.mcp('remove_background', { image_id: one.imageId }),
  'POST /mcp, correct_cutout': one => one.mcp('correct_cutout', { job_id: one.corrected }),
  'POST /account/playground': one => one.page('/account/playground', true),
  'POST /account/playground/:jobId/corrections': one =>
    one.page(`/account/playground/${one.corrected}/corrections`, false),
  'POST /account/jobs/:jobId/corrections': one =>
    one.page(`/account/jobs/${one.corrected}/corrections`, false),
};

test('every route that takes an image, and every check, is in the table', async t => {
  const app = await openTestApp(
    { settings: { photoroom: {}, rembg: { standInKeyId: undefined } } },
    t,
  );
  const routes = routesOf(app.app).filter(one => !/ \/account(?:\/|$)/.test(one));
  // A GET without HEAD changes something.
  const makes = (one: string) =>
    /^(?:POST|PUT) /.test(one) ||
    (one.startsWith('GET ') && !routes.includes(one.replace(/^GET/, 'HEAD')));
  const pages = app.scopedRoutes
    .filter(({ config }) => config.body === 'multipart')
    .map(({ method, url }) => `${method} ${url}`);
  const found = [...routes.filter(makes), ...pages].filter(one => !MAKES_NO_JOB.includes(one));
  sameNames(t, [...new Set(found)], [...new Set(ROWS.map(({ door }) => door.split(',')[0]!))]);
  sameNames(
    t,
    ROWS.map(({ door }) => door),
    Object.keys(SENDS),
  );
  for (const { door, cells } of ROWS) {
    for (const check of ORDER) t.regex(cells[check], /^(?:✓|early|[a-g])$/, `${door}: ${check}`);
  }
});

for (const { door, cells } of ROWS) {
  test(`${door} checks what the table says, in its order`, async t => {
    const send = SENDS[door];
    assert.ok(send, `${door} has no request here`);
    const checks = ORDER.filter(check => ['✓', 'early'].includes(cells[check]));
    const early = checks.filter(check => cells[check] === 'early');
    const later = checks.filter(check => !early.includes(check));
    const inOrder = later.flatMap(check => (check === 'Body' ? [...early, check] : [check]));
    const world = await World.open(t, new Set(checks), door.includes('/playground/'));
    const before = await world.made();
    for (const check of inOrder) {
      const code = await world.codeOf(() => send(world));
      t.true(code !== undefined && CHECKS[check].split(' ').includes(code), `${check}: ${code}`);
      t.is(await world.made(), before, check);
      await world.right(check);
    }
    const made = await world.codeOf(() => send(world));
    t.is(await world.made(), before + 1, `${made}`);
    world.refuseNew();
    t.is(await world.codeOf(() => send(world)), made, 'an open job is joined');
    await world.finish();
    t.is(await world.codeOf(() => send(world)), undefined, 'a job that ended is answered again');
    t.is(await world.made(), before + 1);
  });
}

for (const { door } of ROWS.filter(({ cells }) => cells.Callback === '✓')) {
  test(`${door} is joined by a request that was slower, and that a check refuses meanwhile`, async t => {
    const send = SENDS[door]!;
    const world = await World.open(t, new Set(), false);
    for (const check of ['In flight', 'Credit'] as const) await world.right(check);
    const before = await world.made();
    world.meanwhile = () => send(world);
    t.is(await world.codeOf(() => send(world)), undefined);
    t.is(await world.made(), before + 1);
  });
}
